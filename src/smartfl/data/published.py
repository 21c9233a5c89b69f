"""Are these the authors' own samples?  Decided by the SHA-256 of the decoded arrays, whatever file they came in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from smartfl.data.cache import Decoded
from smartfl.errors import UserError

log = logging.getLogger(__name__)

Checksum = Literal["refuse", "warn"]


def published(name: str, expected: Mapping[str, str], where: Path, checksum: Checksum) -> Callable[[Decoded], None]:
    """A check that refuses, or only warns of, arrays whose checksums are not the published ones."""
    if checksum not in ("refuse", "warn"):
        raise UserError(f"checksum = {checksum!r}: accepted are 'refuse' and 'warn'")

    def check(decoded: Decoded) -> None:
        other = [part for part, digest in expected.items() if decoded.sha256[part] != digest]
        if not other:
            return
        what = f"{where}: {' and '.join(other)} of '{name}' are not the authors' samples (SHA-256 differs)"
        if checksum == "refuse":
            raise UserError(f"{what}; remove them and run `smartfl data fetch {name}`, or set checksum = 'warn'")
        log.warning("%s", what)

    return check
