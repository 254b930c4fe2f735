"""Words of a driver's text that may name a device. Naming is not blaming: rules do that."""

from __future__ import annotations

import re

MAX_NAMES = 8

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,252}")
_PCI = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
# Versions, protocols, errors and the like: letters and a digit, but no device.
_OTHER = re.compile(
    r"(?:v|ipv|http|sha|md|utf|x|aes|tls|h|xid|cuda|gen|pcie|numa|cgroups?|pagesize|exit|status"
    r"|rc|code|err(?:no)?|nps|mtu|vlan|fp|int|uint|u)[-_]?[0-9][0-9a-z.]{0,8}|(?-i:E[A-Z0-9]{2,12})"
    r"|[a-z0-9.]{1,40}\.(?:io|com|net|json|yaml|go|so|sock|svc|local)(?:\.[0-9]{1,3})?"
    r"|0x[0-9a-f]{1,16}|[a-z]{1,20}[0-9]{0,2}\.k8s\.io",
    re.IGNORECASE,
)


def names(part: str, span: tuple[int, int] | None = None) -> tuple[str, ...]:
    """Distinct words of one error that look like devices' names, in order, at most eight.

    With a `span` the words in the same colon-separated piece are taken alone, if there are any.
    """
    found: list[tuple[int, str]] = []
    for match in _TOKEN.finditer(part):
        word = match.group().rstrip(".:-_/")
        if _looks_like_a_device(word):
            found.append((match.start(), word))
    if span is not None and len({word for _, word in found}) > 1:
        start = part.rfind(": ", 0, span[0]) + 1
        end = part.find(": ", span[1])
        near = [one for one in found if start <= one[0] < (end if end >= 0 else len(part))]
        found = near or found
    return tuple(dict.fromkeys(word for _, word in found))[:MAX_NAMES]


def _looks_like_a_device(word: str) -> bool:
    if _PCI.fullmatch(word):
        return True
    return (
        _NAME.fullmatch(word) is not None
        and any(character.isdigit() for character in word)
        and not _UUID.fullmatch(word)
        and not _OTHER.fullmatch(word)
    )
