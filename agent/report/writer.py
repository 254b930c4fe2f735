"""Brings one pod's status in line with what is known of it. Called again after each change.

Raises KubeError; the reporter comes back later.
"""

from __future__ import annotations

import logging
import time

from agent import names
from agent.core import annotation, status
from agent.core.model import Culprit, DeviceState, Verdict
from agent.core.outcome import Decision, Situation, decide
from agent.core.record import PodRecord
from agent.kube.errors import Conflict, KubeError, Unavailable
from agent.kube.parse import parse_pod
from agent.report.entry import Case
from agent.report.parts import Parts

log = logging.getLogger(__name__)

ANNOTATION_PAUSE = 10.0
"""Seconds between two annotations of one pod: each makes kubelet ask again at once."""


class Writer:
    """Writes conditions, annotations and events."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def decide(self, case: Case, version: str) -> Decision:
        """Apply the outcome rules."""
        rules = self._parts.rules
        situation = Situation(
            pod=case.pod,
            claims=case.entry.claims or (),
            record=case.record,
            served=self._parts.calls.served_drivers(),
            kubelet_version=version,
            replied_at=case.entry.replied_at,
            owner_failed_at=rules.owner_failed_at(case.pod),
        )
        return decide(situation, rules.policy(case.record))

    async def retrying(self, case: Case) -> float | None:
        """Say that attempts go on, once they took long enough. Returns when to come back."""
        due = (case.entry.trouble_at or 0.0) + self._parts.rules.retrying_after
        if self._parts.now() < due:
            return due
        said = case.pod.condition(names.CONDITION_PREPARED)
        if said is None or said.status != "False":
            # One that is False already tells more than that kubelet asks again.
            await self._conditions(case, status.failing(case.record))
        return None

    async def report(self, case: Case, note: str) -> float | None:
        """Say what failed, and why the pod was not failed. Returns when to come back."""
        entry, record = case.entry, case.record
        held = [key for key, _ in record.failing if self._parts.calls.holding(*key)]
        statement = status.failing(record, held=bool(held), note=note)
        again: float | None = None
        text = ""
        if held and entry.annotated != record.states:
            again = entry.annotated_at + ANNOTATION_PAUSE
            if again <= self._parts.now():
                text = self.annotation(case, outcome="Report", reason=note or "reported")
                again = None
        await self._conditions(case, statement, text)
        self._escalate(case)
        await self.event(case, action="Report", note=note)
        return again

    def tell_outcome(self, case: Case, decision: Decision, *, acted: bool) -> None:
        """Say what is, or in mode enforce would be, done about a pod: log, metric, debug state.
        The condition says it too. Once for each decision that differs.
        """
        action = "FailPod" if decision.fails or decision.would_fail else "Report"
        entry, pod = case.entry, case.pod
        entry.outcome = {
            "action": action,
            "acted": acted,
            "reason": decision.reason,
            "driver": decision.driver,
            "culprit": decision.culprit,
        }
        mark = (action, acted, decision.driver, decision.culprit)
        if not decision.driver or mark in entry.outcomes:
            return
        entry.outcomes.add(mark)
        self._parts.hooks.on_outcome(decision.driver, action, acted, decision.culprit)
        if decision.would_fail:
            log.warning(
                "pod %s/%s would be failed in mode enforce", pod.namespace, pod.name,
                extra={"driver": decision.driver, "culprit": decision.culprit},
            )  # fmt: skip

    def _escalate(self, case: Case) -> None:
        """Count and log what is no longer normal, once; condition and event say it as well."""
        entry, pod, record = case.entry, case.pod, case.record
        for key in sorted(record.escalated - entry.escalated):
            verdict = dict(record.histories)[key].verdict
            rule = verdict.rule if verdict else ""
            self._parts.hooks.on_escalation(key[0], rule)
            log.warning(
                "pod %s/%s: no longer normal: the same unknown failure again and again",
                pod.namespace, pod.name, extra={"driver": key[0], "rule": rule},
            )  # fmt: skip
        entry.escalated = record.escalated

    async def recovered(self, case: Case) -> None:
        """Say that all is well again, in one write."""
        said = case.pod.condition(names.CONDITION_PREPARED)
        record = case.record
        if record.troubled or (said is not None and said.status == "False"):
            await self._conditions(case, status.prepared(record))
        self._parts.book.settle(key for key, _ in record.histories)
        self._parts.suspects.clear(record)

    async def bypassed(self, case: Case) -> None:
        """Set a False condition of a pod that runs all the same to True."""
        said = case.pod.condition(names.CONDITION_PREPARED)
        if said is not None and said.status == "False":
            await self._conditions(case, status.bypassed())

    def annotation(self, case: Case, *, outcome: str, reason: str) -> str:
        """Return the annotation's value for the pod."""
        rules = self._parts.rules
        return annotation.render(
            case.record,
            mode=rules.mode(case.record),
            outcome=outcome,
            reason=reason,
            wall=time.time(),
            foreign=case.pod.annotation(names.ANNOTATION_FAILURES) if rules.only_driver else "",
        )

    async def event(self, case: Case, *, action: str, note: str) -> None:
        """Write an Event, once per (pod, rule, outcome); the name makes a second one a 409."""
        if not self._parts.rules.events:
            return
        pod, entry = case.pod, case.entry
        body = status.event(
            pod,
            case.record,
            action=action,
            node=self._parts.rules.node,
            note=note,
            wall=time.time(),
        )
        name = body["metadata"]["name"]
        if name in entry.events:
            return
        try:
            await self._parts.kube.create_event(pod.namespace, body)
            self._parts.on_report("event", "ok")
        except Conflict:
            self._parts.on_report("event", "exists")
        except Unavailable:
            raise
        except KubeError as exc:
            log.warning("event for %s/%s: %s", pod.namespace, pod.name, exc)
            self._parts.on_report("event", "refused")
        entry.events.add(name)

    async def _conditions(self, case: Case, statement: status.Statement, text: str = "") -> None:
        entry, pod, record = case.entry, case.pod, case.record
        said = (statement.status, statement.reason, _facts_of(record))
        if said == entry.said and not text:
            return
        verdicts = [] if statement.status == "True" else verdicts_of(record)
        bodies = status.conditions(pod, statement, verdicts=verdicts, wall=time.time())
        if bodies or text:
            patch = status.condition_patch(pod, bodies, text)
            answer = await self._parts.kube.patch_pod_status(pod.namespace, pod.name, patch)
            entry.written = parse_pod(answer)
            self._parts.on_report("condition", "ok")
            log.info(
                "pod %s/%s: %s: %s", pod.namespace, pod.name, statement.reason, statement.message
            )
        entry.said = said
        if text:
            entry.annotated, entry.annotated_at = record.states, self._parts.now()


def verdicts_of(record: PodRecord) -> list[Verdict]:
    """Verdicts of the claims that failed for good, but not of devices that are not to blame."""
    widespread = dict(record.widespread)
    return [
        h.verdict
        for key, h in record.failing
        if h.final and h.verdict
        if not (key in widespread and h.verdict.culprit is Culprit.DEVICE)
    ]


def _facts_of(record: PodRecord) -> tuple[object, ...]:
    """What is worth a new write: not counters, not times, no changing words while retrying."""
    blamed = tuple(
        (
            *(d.device.driver, d.device.device, d.verdict, "" if record.retrying else d.cause),
            *(d.suspect, d.blocker.claim if d.blocker else None),
        )
        for d in record.of(DeviceState.FAILED)
    )
    return (record.states, blamed, record.escalated)
