"""Text from drivers, made safe to print: one line, bounded, nothing that steers a terminal.

Called for everything a driver said before it reaches a log, a condition, an event or a trace.
All steps are single passes, so a megabyte costs milliseconds.
"""

from __future__ import annotations

import re

DEFAULT_LIMIT = 1024
"""Bytes; also what the API server lets an Event's message have."""

KEPT = 8192
"""Characters of each end of a driver's text that outlast the call; rules see less."""

ELLIPSIS = "…"

# ECMA-48: CSI, OSC / DCS / PM / APC strings, and the two- and three-byte escapes. No class
# overlaps the next one and none contains ESC, so a failed match costs one look at its run.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Invisible or direction-changing characters: shown text must be the text (Trojan Source,
# CVE-2021-42574). Soft hyphen, bidi marks and overrides, zero-width, fillers, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]+"
)
_SPACE = re.compile(r"\s+")
_BREAK = re.compile("[\r\n\v\f\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str, limit: int = DEFAULT_LIMIT) -> str:
    """Return `text` as one safe line of at most `limit` bytes of UTF-8.

    Line breaks become "; ", runs of blanks one space; terminal escapes and invisible characters
    go; other control characters become visible as `\\x07`; what is not valid Unicode becomes
    U+FFFD. A cut is marked by "…" and never splits a character.
    """
    text = _ANSI.sub("", text)
    text = _INVISIBLE.sub("", text)
    text = _SPACE.sub(_blank, text.strip())
    text = text[: limit + 1]  # every character left costs a byte or more
    text = _CONTROL.sub(_visible, text)
    text = _SURROGATE.sub("\ufffd", text)
    return cut(text.strip(), limit)


def cut(text: str, limit: int) -> str:
    """Shorten valid text to `limit` bytes of UTF-8, on a character's border, marked by "…"."""
    raw = text[: limit + 1].encode()
    if len(raw) <= limit:
        return text
    room = limit - len(ELLIPSIS.encode())
    if room < 0:
        return raw[:limit].decode(errors="ignore")
    return raw[:room].decode(errors="ignore").rstrip() + ELLIPSIS


def ends(text: str, size: int) -> str:
    """Return `text`, or its first and last `size` characters on two lines where it is longer."""
    if len(text) <= 2 * size:
        return text
    return f"{text[:size]}\n{text[-size:]}"


def quote(text: str, limit: int = 80) -> str:
    """Return `text` cleaned, cut and in double quotes, for use inside a message."""
    return '"' + clean(text, limit).replace('"', "'") + '"'


def _blank(match: re.Match[str]) -> str:
    return "; " if _BREAK.search(match.group()) else " "


def _visible(match: re.Match[str]) -> str:
    return f"\\x{ord(match.group()):02x}"
