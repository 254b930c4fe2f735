"""Durations as people write them in the config: `250ms`, `3s`, `1.5s`, `2m`, `1h`, `0`."""

from __future__ import annotations

import re

EXPECTED = "a duration such as 250ms, 3s, 2m or 1h"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
PATTERN = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)"
"""Regular expression of a duration, number and unit as groups."""

_FORM = re.compile(PATTERN)


class Duration(float):
    """Seconds. Written in config as `250ms`, `3s`, `2m`, `1h`."""


def parse(value: object) -> Duration:
    """Read a duration; ValueError for anything else. A number without a unit is only good as 0."""
    if isinstance(value, Duration):
        return value
    if value in (0, "0") and not isinstance(value, bool):
        return Duration(0)
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected {EXPECTED}")
    # Rounded, so that 250 ms and 0.25 s are the same number.
    return Duration(round(float(match[1]) * _UNITS[match[2]], 6))


def render(seconds: float) -> str:
    """Write seconds as the shortest exact form, the reverse of `parse` to the microsecond."""
    if seconds == 0:
        return "0"
    unit = "ms" if seconds < 1 else "s"
    for name in ("h", "m"):
        if seconds % _UNITS[name] == 0:
            unit = name
            break
    return f"{round(seconds / _UNITS[unit], 6):.6f}".rstrip("0").rstrip(".") + unit
