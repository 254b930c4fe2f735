"""What must be true at the end, from the drivers' own logs and the ResourceSlices over time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..harness.api import ApiError
from ..harness.cluster import Node

Entry = dict[str, Any]


@dataclass
class Holdings:
    """Which claim holds which device of one driver, replayed from its log."""

    doubled: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)  # device -> claim UID
    late: list[str] = field(default_factory=list)  # claims prepared after their unprepare
    prepared: int = 0
    unprepared: int = 0


def replay(entries: Iterable[Entry]) -> Holdings:
    """Entries are written when a call ends, in that order."""
    seen, ended = Holdings(), set[str]()
    for entry in entries:
        if entry["m"] not in ("prepare", "unprepare") or entry["error"]:
            continue
        uid = entry["uid"]
        if entry["m"] == "unprepare":
            seen.unprepared += 1
            ended.add(uid)
            seen.held = {device: held for device, held in seen.held.items() if held != uid}
            continue
        seen.prepared += 1
        if uid in ended:
            seen.late.append(f"{entry['claim']} ({uid})")
        for device in entry["devices"] or []:
            other = seen.held.get(device, uid)
            if other != uid:
                seen.doubled.append(f"{device}: {uid} while {other} has it ({entry['claim']})")
            seen.held[device] = uid
    return seen


class Slices:
    """Counts how often all ResourceSlices of a driver were gone."""

    def __init__(self, node: Node, drivers: Iterable[str]) -> None:
        self.node = node
        self.wipes = dict.fromkeys(drivers, 0)
        self._there = dict.fromkeys(drivers, False)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(10)

    def all_there(self) -> bool:
        return all(self._there.values())

    def _run(self) -> None:
        while not self._end.wait(0.3):
            try:
                items = self.node.api.items("/apis/resource.k8s.io/v1/resourceslices")
            except (OSError, ApiError):
                continue
            found = {each["spec"]["driver"] for each in items}
            for driver, before in self._there.items():
                self.wipes[driver] += before and driver not in found
                self._there[driver] = driver in found
