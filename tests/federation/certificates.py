"""A certificate authority, a server certificate for loopback, and the nodes' keys."""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
PLAIN = serialization.NoEncryption()


def write_certificates(directory: Path) -> None:
    """``ca.crt``, ``server.pem`` and ``server.key``: TLS for 127.0.0.1, valid for a day."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer, subject = _name("smartfl test authority"), _name("127.0.0.1")
    root = _certificate(issuer, issuer, authority.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    (directory / "ca.crt").write_bytes(root.sign(authority, hashes.SHA256()).public_bytes(PEM))
    leaf = _certificate(subject, issuer, server.public_key())
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")])
    leaf = leaf.add_extension(loopback, critical=False)
    (directory / "server.pem").write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(PEM))
    key = server.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)
    (directory / "server.key").write_bytes(key)


def write_node_key(path: Path) -> None:
    """A P-384 key pair in OpenSSH format: ``path`` and ``path``.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN))
    path.with_name(f"{path.name}.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
    )
