"""Words of a driver's text that may name a device. Naming is not blaming: rules do that."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_NAMES = 8

_TOKEN = re.compile(r"(?:/dev/)?[A-Za-z0-9][A-Za-z0-9_.:/-]{0,252}")
_PCI = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_FILE = re.compile(r"/dev/(?:[a-z]{1,20}/)?([A-Za-z0-9_.-]{1,63})")
# Versions, protocols, errors and the like: letters and a digit, but no device.
_OTHER = re.compile(
    r"(?:v|ipv|http|sha|md|utf|x|aes|tls|h|xid|cuda|gen|pcie|numa|cgroups?|pagesize|exit|status"
    r"|rc|code|err(?:no)?|nps|mtu|vlan|fp|int|uint|u)[-_]?[0-9][0-9a-z.]{0,8}|(?-i:E[A-Z0-9]{2,12})"
    r"|[a-z0-9.]{1,40}\.(?:io|com|net|json|yaml|go|so|sock|svc|local)(?:\.[0-9]{1,3})?"
    r"|0x[0-9a-f]{1,16}|[a-z]{1,20}[0-9]{0,2}\.k8s\.io|d[0-3](?:hot|cold)?|i915|[a-z]{2,8}[0-9]_core|[a-z_.-]{0,40}k8s",
    re.IGNORECASE,
)
# Between two words for one thing: `gpu-1 (0000:04:00.0)`, `gpu-1 at 0000:04:00.0`.
_SAME = re.compile(r",? ?[(\[@] ?| at (?:pci )?|/", re.IGNORECASE)


def words(said: str) -> Iterator[tuple[str, bool]]:
    """The single words of a text, and for each whether it stands beside the one before it as
    another word for the same thing.
    """
    end = -1  # of the name before, if it may go on
    for match in _TOKEN.finditer(said):
        word = match.group().rstrip(".:-_/")
        if word.lower() in ("at", "pci"):
            yield word, False
            continue
        yield word, end >= 0 and _SAME.fullmatch(said[end : match.start()][:10]) is not None
        end = match.start() + len(word) if any(map(str.isdigit, word)) else -1


def names(said: str) -> tuple[str, ...]:
    """Distinct words of one text that look like devices' names, in order, at most eight."""
    found: list[str] = []
    for word, same in words(said):
        if is_name(word) and not same:
            name = device_file(word) or word
            found += [] if name.isdigit() else [name]
    return tuple(dict.fromkeys(found))[:MAX_NAMES]


def device_file(word: str) -> str | None:
    """The last part of a path under /dev; None for any other word."""
    match = _FILE.fullmatch(word)
    return match[1] if match is not None else None


def is_name(word: str) -> bool:
    """Whether a word alone looks like a device: a name with a digit, an address, a device file."""
    if word.isalpha():
        return False
    if _PCI.fullmatch(word) or _FILE.fullmatch(word):
        return True
    return (
        _NAME.fullmatch(word) is not None
        and any(character.isdigit() for character in word)
        and not _UUID.fullmatch(word)
        and not _OTHER.fullmatch(word)
    )
