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
from agent.core.message import message
from agent.core.model import Culprit, DeviceState, Verdict
from agent.core.pods import Pod
from agent.core.record import PodRecord
from agent.core.text import cut

MESSAGE_LIMIT = 4096
"""Bytes of a condition's message."""

NOTE_LIMIT = 1024
"""Most that events.k8s.io/v1 takes as a note."""

BYPASSED = "prepared, not seen by the agent"

Body = dict[str, Any]


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
    return Statement("False", reason, message(record, note, MESSAGE_LIMIT))


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


def failed_patch(pod: Pod, bodies: Sequence[Body], *, text: str, annotation: str) -> Body:
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
            "message": cut(text, NOTE_LIMIT),
            "conditions": list(bodies),
        },
    }


def event_name(pod: str, mark: str) -> str:
    """Name an Event after its pod; a cut must not end a label with a sign, or it is no name."""
    return f"{pod[:230].rstrip('-.')}.{mark}"


def event(pod: Pod, record: PodRecord, *, action: str, node: str, note: str, wall: float) -> Body:
    """Event of events.k8s.io/v1, named after (pod, rule, outcome, whether it is still normal):
    a second one is a 409.
    """
    rules = ",".join(sorted({h.verdict.rule for _, h in record.failing if h.verdict}))
    step = "/escalated" if record.escalated else ""
    mark = hashlib.sha256(f"{pod.uid}/{rules}/{action}{step}".encode()).hexdigest()[:16]
    body: Body = {
        "metadata": {"name": event_name(pod.name, mark), "namespace": pod.namespace},
        "eventTime": stamp_micro(wall),
        "type": "Warning",
        "reason": names.EVENT_REASON,
        "action": action,
        "note": message(record, note, NOTE_LIMIT),
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
