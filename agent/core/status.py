"""Bodies of what is written to the API server: conditions, patches, events.

Pure: the wall time is an argument. Conditions are patched by strategic merge, whose key is the
type, so only ours are sent. Sources of limits: docs/reporting.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent import names
from agent.core.annotation import stamp, stamp_micro
from agent.core.model import Culprit, DeviceState, Verdict
from agent.core.pods import Pod
from agent.core.record import DeviceRecord, History, PodRecord
from agent.core.text import cut

MESSAGE_LIMIT = 4096
"""Bytes of a condition's message."""

NOTE_LIMIT = 1024
"""Most that events.k8s.io/v1 takes as a note."""

BYPASSED = "prepared, not seen by the agent"

Body = dict[str, Any]

_CAUSE_LIMITS = (1024, 512, 256, 128, 64)
_STATE_WORDS = {
    DeviceState.BLOCKED: "Blocked by it",
    DeviceState.PENDING: "Not asked for yet",
    DeviceState.PREPARED: "Prepared",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """What the condition DevicesPrepared is to say."""

    status: str  # "True" | "False"
    reason: str
    message: str


def failing(record: PodRecord, *, held: bool = False, note: str = "") -> Statement:
    """Say what failed. `note` is the sentence about the outcome."""
    failed = len(record.of(DeviceState.FAILED))
    if record.retrying:
        reason = names.REASON_RETRYING
    elif held:
        reason = names.REASON_HELD_BACK
    elif failed == len(record.devices):
        reason = names.REASON_ALL_FAILED
    else:
        reason = names.REASON_SOME_FAILED
    return Statement("False", reason, _message(record, note, MESSAGE_LIMIT))


def prepared(record: PodRecord) -> Statement:
    """Say that all is well after trouble."""
    troubled = [h for _, h in record.histories if h.first_error]
    if not troubled:
        return Statement("True", names.REASON_PREPARED, "all devices prepared")
    first = min(troubled, key=lambda h: h.first_wall)
    # The trace id comes before the driver's text, which may be long and is then cut.
    trace = f" (trace {first.trace_id})" if first.trace_id else ""
    count = f"{record.attempts} attempts{trace}"
    text = f"all devices prepared after {count}; first error: {first.first_error}"
    return Statement("True", names.REASON_PREPARED, cut(text, MESSAGE_LIMIT))


def bypassed() -> Statement:
    """Say that the pod runs although the agent saw only the failure."""
    return Statement("True", names.REASON_PREPARED, BYPASSED)


def conditions(
    pod: Pod, statement: Statement, *, verdicts: Iterable[Verdict], wall: float
) -> list[Body]:
    """Return those of our conditions that differ from the pod's. Empty: nothing to write."""
    culprits = {v.culprit for v in verdicts if v.permanent}
    wanted = [(names.CONDITION_PREPARED, statement)]
    for kind, blamed in (
        (names.CONDITION_DEVICE_FAULT, {Culprit.DEVICE}),
        (names.CONDITION_INVALID_PARAMETERS, {Culprit.PARAMETERS, Culprit.CLAIM}),
    ):
        if culprits & blamed:
            wanted.append((kind, Statement("True", statement.reason, statement.message)))
        elif pod.condition(kind) is not None:
            wanted.append((kind, Statement("False", statement.reason, "")))
    bodies = []
    for kind, said in wanted:
        old = pod.condition(kind)
        if old and (old.status, old.reason, old.message) == (
            said.status,
            said.reason,
            said.message,
        ):
            continue
        moved = old is None or old.status != said.status or not old.last_transition
        bodies.append(
            {
                "type": kind,
                "status": said.status,
                "reason": said.reason,
                "message": said.message,
                "lastTransitionTime": stamp(wall) if moved or old is None else old.last_transition,
            }
        )
    return bodies


def condition_patch(pod: Pod, bodies: Sequence[Body], annotation: str = "") -> Body:
    """Patch of conditions, with the annotation where one is due. kubelet keeps both."""
    metadata: Body = {"uid": pod.uid}
    if annotation:
        metadata["annotations"] = {names.ANNOTATION_FAILURES: annotation}
    return {"metadata": metadata, "status": {"conditions": list(bodies)}}


def failed_patch(pod: Pod, bodies: Sequence[Body], *, message: str, annotation: str) -> Body:
    """Patch that fails the pod. All in one: kubelet undoes a phase that comes without an
    annotation change, and the resourceVersion makes sure that what was checked still holds.
    """
    return {
        "metadata": {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {names.ANNOTATION_FAILURES: annotation},
        },
        "status": {
            "phase": "Failed",
            "reason": names.PHASE_REASON,
            "message": cut(message, NOTE_LIMIT),
            "conditions": list(bodies),
        },
    }


def event(pod: Pod, record: PodRecord, *, action: str, node: str, note: str, wall: float) -> Body:
    """Event of events.k8s.io/v1, named after (pod, rule, outcome): a second one is a 409."""
    rules = ",".join(sorted({h.verdict.rule for _, h in record.failing if h.verdict}))
    mark = hashlib.sha256(f"{pod.uid}/{rules}/{action}".encode()).hexdigest()[:16]
    body: Body = {
        "metadata": {"name": f"{pod.name[:230]}.{mark}", "namespace": pod.namespace},
        "eventTime": stamp_micro(wall),
        "type": "Warning",
        "reason": names.EVENT_REASON,
        "action": action,
        "note": _message(record, note, NOTE_LIMIT),
        "reportingController": names.EVENT_CONTROLLER,
        "reportingInstance": node[:128] or "unknown",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
    }
    blamed = record.of(DeviceState.FAILED)
    if blamed:
        claim = blamed[0].device.claim
        body["related"] = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
    return body


def _message(record: PodRecord, note: str, limit: int) -> str:
    failed = record.of(DeviceState.FAILED)
    verb = "not prepared yet, being retried" if record.retrying else "could not be prepared"
    head = f"{len(failed)} of {len(record.devices)} devices {verb}."
    tail = [_listing(state, record.of(state)) for state in _STATE_WORDS]
    if note:
        tail.append(f"Pod {note}." if not note.endswith(".") else f"Pod {note}")
    end = " ".join(part for part in tail if part)
    for cause in _CAUSE_LIMITS:
        middle = " ".join(_group(devices, cause) for devices in _grouped(failed))
        text = " ".join(part for part in (head, middle, end) if part)
        if len(text.encode()) <= limit:
            return text
    room = limit - len(head.encode()) - min(len(end.encode()), limit // 4) - 2
    return cut(f"{head} {cut(middle, max(room, 0))} {end}", limit)


def _grouped(failed: Sequence[DeviceRecord]) -> list[list[DeviceRecord]]:
    groups: dict[tuple[str, str], list[DeviceRecord]] = {}
    for device in failed:
        groups.setdefault((device.device.driver, device.device.claim.uid), []).append(device)
    return list(groups.values())


def _group(devices: Sequence[DeviceRecord], cause: int) -> str:
    first = devices[0]
    where = f"{_names(devices)} of {first.device.driver} (claim {first.device.claim.name})"
    history, verdict = first.history, first.verdict
    text = f"{where}: {cut(first.cause, cause)}" if first.cause else f"{where}: failed"
    if verdict is not None:
        if verdict.hint:
            text += f". Hint: {cut(verdict.hint, cause)}"
        text += f" [{verdict.kind}, {verdict.culprit}, rule {verdict.rule}{_counts(history)}]"
    return text + ("" if text.endswith(".") else ".")


def _counts(history: History | None) -> str:
    if history is None:
        return ""
    text = f", attempts {history.attempts}" if history.attempts else ""
    return text + (f", trace {history.trace_id}" if history.trace_id else "")


def _listing(state: DeviceState, devices: Sequence[DeviceRecord]) -> str:
    return f"{_STATE_WORDS[state]}: {_names(devices)}." if devices else ""


def _names(devices: Sequence[DeviceRecord]) -> str:
    shown = [device.device.device for device in devices[:8]]
    more = len(devices) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
