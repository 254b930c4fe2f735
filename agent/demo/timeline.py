"""What happened to one pod, from every side, in the order it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent import names
from agent.demo.calls import Call
from agent.demo.kubelet import Said
from agent.demo.periods import REAL_RESYNC
from agent.demo.store import Change
from agent.demo.world import World

CREATED = "created"
RUNNING = "Running"
AGENTS_WORDS = "dra-agent: "  # before a driver's text, where the agent passed it on
REAL = f"on a real node after {REAL_RESYNC[0]:.0f}-{REAL_RESYNC[1]:.0f} s"


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One line: unix seconds, who did it, what."""

    wall: float
    who: str
    what: str


def created(world: World, pod: str) -> float:
    """When the pod was created, unix seconds."""
    return next(c.wall for c in world.store.history if c.key[0] == "pods" and c.key[2] == pod)


def collect(world: World, pod: str, drivers: tuple[str, ...]) -> list[Entry]:
    """All entries of a pod, oldest first, the first one its creation."""
    entries = [Entry(created(world, pod), "pod", CREATED)]
    calls = [call for driver in drivers for call in world.calls(driver, pod=pod)]
    said = [said for said in world.kubelet.said if said.pod == pod]
    entries += _kubelet(said, world, calls)
    for driver in drivers:
        entries += _driver(world.calls(driver, names.PREPARE, pod), "prepare")
        entries += _driver(world.calls(driver, names.UNPREPARE, pod), "unprepare")
    changes = [c for c in world.store.history if c.key[2] == pod or c.key[2].startswith(f"{pod}-")]
    entries += _api(changes)
    return sorted(entries)


def _kubelet(said: list[Said], world: World, calls: list[Call]) -> list[Entry]:
    entries = []
    last_asked = last_failed = 0.0
    for one in said:
        if one.what == "prepare":
            last_asked = one.wall
            entries.append(Entry(one.wall, "kubelet", _asks(one.wall, last_failed, world)))
        elif one.what == "failed":
            last_failed = one.wall
            asked = [call for call in calls if last_asked <= call.started <= one.wall]
            entries.append(Entry(one.wall, "kubelet", _failed(one.text, asked)))
        elif one.what == "running":
            entries.append(Entry(one.wall, "pod", RUNNING))
        elif one.what == "unprepared":
            entries.append(Entry(one.wall, "kubelet", "has unprepared the pod's claims"))
        else:
            entries.append(Entry(one.wall, "kubelet", f"{one.what}: {one.text}"))
    return entries


def _asks(wall: float, last_failed: float, world: World) -> str:
    waited = wall - last_failed
    if not last_failed:
        return "calls NodePrepareResources"
    # Half: the Event is noted a little after the wait for the next sync has begun.
    if waited < world.periods.resync[0] / 2:
        return "calls again at once: an annotation of the pod changed"
    return f"calls again {waited:.1f} s later ({REAL})"


def _failed(text: str, asked: list[Call]) -> str:
    if any(_tail(call.error) == _tail(text) for call in asked if call.error):
        return "passes this on as an Event, and waits"
    if AGENTS_WORDS in text and not asked:
        return "is answered by the agent, which does not ask the driver again"
    return f"writes an Event, and waits: {_tail(text)}"


def _driver(calls: list[Call], operation: str) -> list[Entry]:
    entries = []
    for number, call in enumerate(calls, 1):
        if not call.ended:
            entries.append(Entry(call.started, "driver", f"{operation} {number} begins, no answer"))
        elif call.error:
            text = f"{operation} {number} fails: {_tail(call.error)}"
            entries.append(Entry(call.ended, "driver", text))
        else:
            entries.append(Entry(call.ended, "driver", f"{operation} {number} works"))
    return entries


def _api(changes: list[Change]) -> list[Entry]:
    entries = []
    before: dict[str, Any] = {}
    for change in changes:
        kind = change.key[0]
        if kind == "resourceclaims" and change.by == "controller":
            entries.append(Entry(change.wall, "cluster", f"claim {change.key[2]} is released"))
        if kind != "pods":
            continue
        now = _told(change.object)
        if change.by == "agent":
            entries += [
                Entry(change.wall, "agent", f"writes {key} = {value}")
                for key, value in now.items()
                if before.get(key) != value
            ]
        before = now
    return entries


def _told(pod: dict[str, Any]) -> dict[str, str]:
    """What a reader of the pod sees change, shortened."""
    status = pod.get("status", {})
    told = {
        c["type"].removeprefix(f"{names.DOMAIN}/"): f"{c['status']} ({c.get('reason', '')})"
        for c in status.get("conditions") or []
        if c["type"].startswith(names.DOMAIN)
    }
    told["phase"] = status.get("phase", "") + (
        f" ({status['reason']})" if status.get("reason") else ""
    )
    if names.ANNOTATION_FAILURES in (pod["metadata"].get("annotations") or {}):
        told["annotation"] = names.ANNOTATION_FAILURES.removeprefix(f"{names.DOMAIN}/")
    return told


def _tail(text: str) -> str:
    """The end of a driver's text says most; kubelet's and the driver's prefixes go."""
    return text.rpartition("prepare failed: ")[2].removeprefix("prepare dynamic resources: ")
