"""How a call broke, from the words of a client that only kept those.

The agent itself sees the exception and does not need this; `explain` does, for texts that were
collected elsewhere. The words are those of grpc-go, grpclib and the C library.
"""

from __future__ import annotations

import re

from agent.core.model import Transport

_CANCELLED, _DEADLINE = 1, 4  # gRPC codes

_WORDS = (
    (Transport.CANCELLED, re.compile(r"error[ _]code: (?:CANCEL\b|8\b)|context cancell?ed")),
    (Transport.REFUSED, re.compile(r"refused|Connect call failed|ECONNREFUSED")),
    (Transport.GONE, re.compile(r"[Nn]o such file|ENOENT|FileNotFoundError")),
    (Transport.DEADLINE, re.compile(r"[Dd]eadline|[Tt]imed? ?out")),
    (Transport.PROTOCOL, re.compile(r"malformed|unexpected content-type|frame (?:too large|size)")),
)


def of_words(text: str, code: int | None = None) -> Transport:
    """Name the way in which a call broke; a loss of the connection where nothing says more."""
    head = text[:4096]
    for kind, words in _WORDS:
        if words.search(head):
            return kind
    if code == _DEADLINE:
        return Transport.DEADLINE
    return Transport.CANCELLED if code == _CANCELLED else Transport.RESET
