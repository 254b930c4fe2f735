"""A driver's verdict inside its error text, for drivers whose protocol has no field for one.

    [dra-agent.io permanent claim=<UID> culprit=parameters device=gpu-1 retry-after=5s]

It may stand anywhere in the text, so it survives whatever wraps the error. It counts only if it
names the claim that failed by UID: what a claim's author can get into a driver's text (parameters,
names) was written before the API server gave the claim its UID, so it cannot be forged there.
Anything malformed is text like any other. docs/for-driver-authors.md is the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.model import Culprit, Kind

MAX_RETRY_AFTER = 3600.0
"""Seconds; a longer wish is cut to it. Nobody waits that long inside a call anyway."""

_MAX_MARKERS = 256
# No brackets inside, so each failed start ends at the next one: linear.
_MARKER = re.compile(r"\[dra-agent\.io ([ !-Z\\^-~]{1,400})\]")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,252}[A-Za-z0-9])?")
_SECONDS = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)(ms|s)")
_FINALITY = {Kind.PERMANENT: 0, Kind.AMBIGUOUS: 1, Kind.TRANSIENT: 2}


@dataclass(frozen=True, slots=True)
class Marker:
    """What a driver says about its own error."""

    kind: Kind
    claim: str
    culprit: Culprit = Culprit.UNKNOWN
    device: str | None = None
    retry_after: float | None = None  # seconds


def find(text: str, claim: str) -> Marker | None:
    """The most final well-formed marker for this claim; None without one or without a UID."""
    if not claim:
        return None
    mine = [marker for marker in markers(text) if marker.claim == claim]
    return min(mine, key=lambda marker: _FINALITY[marker.kind], default=None)


def markers(text: str) -> Iterator[Marker]:
    """All well-formed markers of a text, whatever claim they name; at most 256 are looked at."""
    for number, match in enumerate(_MARKER.finditer(text)):
        if number >= _MAX_MARKERS:
            return
        marker = _read(match)
        if marker is not None:
            yield marker


def seconds(written: str) -> float | None:
    """A period such as `5s` or `250ms` in seconds; None when it is none."""
    match = _SECONDS.fullmatch(written)
    if match is None:
        return None
    return min(float(match[1]) / (1000.0 if match[2] == "ms" else 1.0), MAX_RETRY_AFTER)


def culprit_of(word: str) -> Culprit | None:
    """The culprit of that name; None when there is none."""
    return Culprit(word) if word in set(Culprit) else None


def device_of(word: str) -> str | None:
    """The word, if it can name a device (a name, `pool/name`, a UUID, a PCI address)."""
    return word if _DEVICE.fullmatch(word) else None


def _read(match: re.Match[str]) -> Marker | None:
    verdict, *pairs = match[1].split()
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not value or key in given:
            return None
        given[key] = value
    culprit = culprit_of(given.get("culprit", "unknown"))
    device = device_of(given["device"]) if "device" in given else None
    retry_after = seconds(given["retry-after"]) if "retry-after" in given else None
    wrong = (
        verdict not in set(Kind)
        or culprit is None
        or not given.get("claim")
        or ("device" in given and device is None)
        or ("retry-after" in given and retry_after is None)
    )
    if wrong or culprit is None:
        return None
    return Marker(Kind(verdict), given["claim"], culprit, device, retry_after)
