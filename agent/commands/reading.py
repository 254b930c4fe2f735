"""Reads a driver's error text, however long it is and whatever its bytes are."""

from __future__ import annotations

import sys
from typing import BinaryIO

from agent.errors import UserError

KEPT = 1 << 19
"""Bytes kept of either end; the classifier looks at both ends of a text, too."""


def read_stdin() -> str:
    """Read the text from standard input."""
    return _text(sys.stdin.buffer)


def read_file(path: str) -> str:
    """Read the text from a file; UserError where that is not possible."""
    try:
        with open(path, "rb") as file:
            return _text(file)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _text(stream: BinaryIO) -> str:
    start = stream.read(KEPT)
    end, whole = b"", True
    while chunk := stream.read(KEPT):
        end += chunk
        if len(end) > KEPT:
            end, whole = end[-KEPT:], False
    return (start + (b"" if whole else b"\n") + end).decode("utf-8", "replace").rstrip("\n")
