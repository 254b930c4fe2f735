"""What must be true at the end, from the drivers' own logs and the kubelet's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..harness import steps
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


def wipes(node: Node, drivers: Iterable[str]) -> Counter[str]:
    """How often the kubelet deleted a driver's ResourceSlices because nobody served it.

    At its own start it deletes all of the node, and whether a driver had any by then is chance.
    """
    lines = steps.kubelet_log(node, '"Deleted ResourceSlices"', "driverName=")
    return Counter(name for line in lines for name in drivers if line.value("driverName") == name)


def devices_there(node: Node, drivers: Iterable[str]) -> bool:
    """Whether each driver's devices are published."""
    return all(node.api.slices(driver) for driver in drivers)
