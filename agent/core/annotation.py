"""The JSON of the annotation `dra-agent.io/device-failures`. Format: docs/reporting.md.

Version 1. One entry per device, worst first. It must fit names.ANNOTATION_LIMIT whatever drivers
say: texts are cut first, then an entry refers to an earlier one (`sameAs`) for what is equal,
then hints go, and only then devices at the end of the list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent import names
from agent.core.model import MATCHED, DeviceState
from agent.core.record import DeviceRecord, PodRecord
from agent.core.text import clean, cut

VERSION = 1

_IDENTITY = ("request", "device", "shareID")  # what differs between entries that share the rest
_FEW = 4  # of what may be many
_TEXTS = ("cause", "firstError", "lastError", "hint")


@dataclass(frozen=True, slots=True)
class _Squeeze:
    """One way to make it shorter; the first that fits is taken."""

    text: int  # bytes per text
    share: bool = False
    hints: bool = True


_SQUEEZES = (
    _Squeeze(1024),
    _Squeeze(512),
    _Squeeze(256),
    _Squeeze(512, share=True),
    _Squeeze(256, share=True),
    _Squeeze(128, share=True, hints=False),
)


def stamp(wall: float) -> str:
    """Return unix seconds as RFC 3339 in UTC with whole seconds, or "" for 0."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if wall else ""


def stamp_micro(wall: float) -> str:
    """Return unix seconds as the API's MicroTime."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def entries(record: PodRecord) -> list[dict[str, Any]]:
    """Return one plain entry per device, uncut, worst first. Also what /debug/state shows."""
    return [_entry(device, record) for device in record.devices]


def read(text: str) -> list[dict[str, Any]]:
    """Return the devices of an annotation, `sameAs` filled in. What is not ours is left out."""
    found: list[dict[str, Any]] = []
    for entry in _devices_in(text):
        base = entry.pop("sameAs", None)
        known = isinstance(base, int) and not isinstance(base, bool) and 0 <= base < len(found)
        found.append({**found[base], **entry} if known else entry)
    return found


def render(
    record: PodRecord, *, mode: str, outcome: str, reason: str, wall: float, foreign: str = ""
) -> str:
    """Return the annotation's value, at most names.ANNOTATION_LIMIT bytes.

    `foreign`: the annotation as it stands, where another agent (a sidecar per driver) knows more
    of devices that this one was not asked for.
    """
    head: dict[str, Any] = {
        "version": VERSION,
        "mode": mode,
        "outcome": outcome,
        "reason": clean(reason, 512),
        "writtenAt": stamp_micro(wall),  # a value that differs makes kubelet look at the pod
    }
    theirs = {_place(d): d for d in _foreign_entries(foreign)}
    devices = [
        theirs.get(_place(d), d) if d["state"] == DeviceState.PENDING else d
        for d in entries(record)
    ]
    for squeeze in _SQUEEZES:
        short = _squeezed(devices, squeeze)
        text = _dump({**head, "devices": short})
        if _fits(text):
            return text
    return _dropped(head, short)


def _entry(record: DeviceRecord, pod: PodRecord) -> dict[str, Any]:
    device, history, verdict = record.device, record.history, record.verdict
    entry: dict[str, Any] = {
        "claim": device.claim.name,
        "request": device.request,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "state": str(record.state),
    }
    if device.share_id:
        entry["shareID"] = device.share_id
    if history is None or not (history.troubled and record.state is not DeviceState.BLOCKED):
        return entry
    if device.parameters_from:
        entry["parametersFrom"] = device.parameters_from
        if "class" in device.parameters_from and device.device_class:
            entry["deviceClass"] = device.device_class
    if record.state is DeviceState.FAILED:
        entry["cause"] = record.cause
    if verdict is not None:
        entry |= {
            "verdict": str(verdict.kind),
            "culprit": str(verdict.culprit),
            "rule": verdict.rule,
        }
        if verdict.hint:
            entry["hint"] = verdict.hint
    if (device.driver, device.claim.uid) in pod.escalated:
        entry["escalated"] = True
    entry |= _found(record)
    entry |= {
        "attempts": history.attempts,
        "firstError": history.first_error,
        "lastError": history.last_error,
        "firstTime": stamp(history.first_wall),
        "lastTime": stamp(history.last_wall),
        "traceID": history.trace_id,
    }
    return entry


def _found(record: DeviceRecord) -> dict[str, Any]:
    """What attribution, history and context add; only what there is."""
    found: dict[str, Any] = {}
    if record.at_fault:
        found["atFault"] = True
    matched = record.verdict.matched if record.verdict is not None else ""
    if matched:
        found["matched"] = matched
    if record.blame is not None and record.blame.span is not None:
        start, end = record.blame.span
        # `cause` may begin with the agent's own prefix, or end before these words.
        words = clean(record.cause[start:end], MATCHED)
        if words == matched or (not matched and end <= len(record.cause)):
            found["matchedAt"] = [start, end]
    if record.suspect:
        found["suspect"] = record.suspect
    if record.blocker is not None:
        blocker = record.blocker
        found["blockedBy"] = {"claim": blocker.claim.name, "namespace": blocker.claim.namespace}
        if blocker.pod:
            found["blockedBy"]["pod"] = blocker.pod
        if blocker.seconds is not None:
            found["blockedBy"] |= {
                "operation": blocker.operation,
                "seconds": round(blocker.seconds),
            }
    if record.holders:
        found["alsoHeldBy"] = [f"{ref.namespace}/{ref.name}" for ref in record.holders[:_FEW]]
    if record.taints:
        found["taints"] = [clean(taint, 128) for taint in record.taints[:_FEW]]
    return found


def _squeezed(devices: Sequence[dict[str, Any]], squeeze: _Squeeze) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    bases: dict[str, int] = {}
    for device in devices:
        entry = dict(device)
        if not squeeze.hints:
            entry.pop("hint", None)
            entry.pop("matched", None)
        for key in _TEXTS:
            if key in entry:
                entry[key] = cut(entry[key], squeeze.text)
        _drop_lost_span(entry, device)
        if squeeze.share:
            rest = _dump({k: v for k, v in entry.items() if k not in _IDENTITY})
            base = bases.setdefault(rest, len(done))
            if base != len(done):
                first = done[base]
                entry = {k: entry[k] for k in _IDENTITY if k in entry and entry[k] != first.get(k)}
                entry["sameAs"] = base
        done.append(entry)
    return done


def _drop_lost_span(entry: dict[str, Any], device: dict[str, Any]) -> None:
    """Positions in `cause` say nothing where it was cut before them."""
    whole, left = device.get("cause"), entry.get("cause")
    match entry.get("matchedAt"):
        case [int(), int(end)] if whole == left or end < len(str(left)):
            return
    entry.pop("matchedAt", None)


def _dropped(head: dict[str, Any], devices: list[dict[str, Any]]) -> str:
    """Leave out devices from the end, the least bad ones, and say how many."""
    low, high = 0, len(devices)
    best = _dump({**head, "devices": [], "omitted": len(devices)})
    while low < high:
        middle = (low + high + 1) // 2
        text = _dump({**head, "devices": devices[:middle], "omitted": len(devices) - middle})
        if _fits(text):
            low, best = middle, text
        else:
            high = middle - 1
    return best


def _foreign_entries(text: str) -> list[dict[str, Any]]:
    return [d for d in _devices_in(text) if "sameAs" not in d]


def _devices_in(text: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return []
    found = document.get("devices") if isinstance(document, dict) else None
    return [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []


def _place(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in ("claim", "driver", "pool", "device", "shareID"))


def _dump(value: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _fits(text: str) -> bool:
    return len(text.encode(errors="surrogatepass")) <= names.ANNOTATION_LIMIT
