"""A federation with TLS and node authentication on loopback, of which most nodes fail.  ``make federation`` runs it.

1. The app of ``smartfl flower new`` in a deployment, in Flower's simulation and in our simulator: one model to 1e-6.
2. Seven nodes: two flip labels, one sends NaN, one a wrong shape, one claims 10^12 samples, one is killed in round 2;
   an eighth with an unregistered key is refused.  The SuperLink is killed after round 3 and restarted.  The model must
   be within two points of the three that train honestly, alone, and no process may be left over.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "flower"), str(HERE / "app")]

from certificates import write_certificates, write_node_key  # noqa: E402
from equality import check_equality  # noqa: E402
from faults import FAULTS, check_faults, start_faulty_nodes  # noqa: E402
from processes import Federation, free_port, healthy, wait  # noqa: E402

NODES = len(FAULTS)


def start_superlink(federation: Federation, port: int) -> None:
    root = federation.root
    federation.start(
        "superlink", "flower-superlink", "--ssl-ca-certfile", root / "ca.crt", "--ssl-certfile", root / "server.pem",
        "--ssl-keyfile", root / "server.key", "--enable-supernode-auth", "--host", "127.0.0.1", "--port", str(port),
        "--database", root / "state.db", "--disable-runtime-dependency-installation",
    )  # fmt: skip
    wait("the SuperLink answers", lambda: healthy(port, root / "ca.crt"), 240)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smartfl-federation-") as directory:
        root = Path(directory)
        federation = Federation(root)
        try:
            write_certificates(root)
            port = free_port()
            federation.config(loopback=f'address = "127.0.0.1:{port}"\nroot-certificates = "{root / "ca.crt"}"')
            start_superlink(federation, port)
            for number in range(NODES):
                write_node_key(root / f"node-{number}")
                name = f"node-{number}"
                federation.ask("supernode", "register", root / f"{name}.pub", "loopback", "--name", name)
            write_node_key(root / "stranger")
            failures = check_equality(federation, port)
            start_faulty_nodes(federation, port)
            failures += check_faults(federation, port, lambda: start_superlink(federation, port))
        except BaseException:
            for log in sorted(root.glob("*.log")):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
            raise
        finally:
            left = federation.close()
    failures += [f"a process was left over: {command}" for command in left]
    print(f"{time.monotonic() - started:.0f} s")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
