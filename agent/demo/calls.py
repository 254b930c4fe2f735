"""The calls that a scripted driver's processes saw, read from their common log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.demo.processes import json_lines


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a driver saw; `ended` is 0 if it never answered. Times are unix seconds."""

    method: str
    claims: tuple[str, ...]
    started: float
    ended: float
    error: str


def read_calls(log: Path, operation: str, pod: str = "") -> list[Call]:
    """Calls of one operation, in order, of all pods or of one. Claims are named `<pod>-…`."""
    ends: dict[tuple[int, int], dict[str, Any]] = {}
    starts: list[dict[str, Any]] = []
    for line in json_lines(log):
        if line["what"] == "start":
            starts.append(line)
        elif line["what"] == "end":
            ends[line["pid"], line["call"]] = line
    found = []
    for line in starts:
        if operation in line["method"] and _is_for(pod, line["claims"]):
            end = ends.get((line["pid"], line["call"]), {"t": 0.0, "error": ""})
            call = Call(line["method"], tuple(line["claims"]), line["t"], end["t"], end["error"])
            found.append(call)
    return found


def _is_for(pod: str, claims: Sequence[str]) -> bool:
    return not pod or any(claim.startswith(f"{pod}-") for claim in claims)
