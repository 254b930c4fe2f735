"""gRPC status codes as people and programs write them."""

from __future__ import annotations

import re

from agent.core.rules import CODES

_OK = 0
_BY_WORD = {name.replace("_", ""): number for name, number in CODES.items()} | {
    "OK": _OK,
    "CANCELED": CODES["CANCELLED"],
}
_BETWEEN = re.compile(r"[\s_-]+")


def number(written: object) -> int | None:
    """Return a code's number; None: none, or OK, which is no failure. ValueError: unknown.

    `DEADLINE_EXCEEDED`, `DeadlineExceeded`, `deadline exceeded`, `"4"` and `4` are the same.
    """
    if written is None:
        return None
    found: int | None = None
    if isinstance(written, int) and not isinstance(written, bool):
        found = written
    elif isinstance(written, str):
        word = _BETWEEN.sub("", written).upper()
        if not word:
            return None
        # At most two digits: a longer number is none of them, and may be too long to read.
        digits = written.strip()
        short = digits.isascii() and digits.isdigit() and len(digits) <= 2
        found = int(digits) if short else _BY_WORD.get(word)
    if found is None or (found != _OK and found not in CODES.values()):
        raise ValueError("unknown gRPC code")
    return found or None
