"""What the fuzz command found once, and its first cases; see fuzz.py."""

from __future__ import annotations

import base64
import json
import time
from contextlib import suppress

import pytest
from fuzz import CORPUS, KINDS, SLOW, one, read_bytes

from smartfl.errors import UserError

FOUND = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_what_was_found_stays_mended(number):
    started = time.process_time()
    with suppress(UserError):
        read_bytes(FOUND[number]["kind"], base64.b64decode(FOUND[number]["bytes"]))
    assert time.process_time() - started < SLOW


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_cases(kind):
    for number in range(1, 31):
        one(kind, number)
