"""Fails a pod: the one patch, at the right moment, after looking at everything again.

When: kubelet looks at its containers once a second; a patch within 1.2 s of the failed answer, or
while a prepare runs, makes the phase flap, and then a ReplicaSet may delete the good replacement.
What: docs/reporting.md, "Failing a pod".
"""

from __future__ import annotations

import logging
import time

from agent.core import status
from agent.core.outcome import Decision
from agent.kube.errors import Conflict, Denied, Invalid, KubeError, NotFound, Unavailable
from agent.kube.parse import parse_pod
from agent.report.entry import Case, Entry
from agent.report.examine import Examiner
from agent.report.parts import Parts, read_claims
from agent.report.writer import Writer, verdicts_of

log = logging.getLogger(__name__)

CONFLICTS = 3
"""How often the pod may have changed under us."""

BUSY = 0.1
"""Seconds between two looks at a call in flight."""

SOON = 5.0
"""A wait longer than this is told in the pod's condition."""

VERSION_AGE = 60.0
"""Seconds for which the node's kubelet version is believed."""


class Failer:
    """Decides and acts on failures that are final for their call."""

    def __init__(self, parts: Parts, writer: Writer, examiner: Examiner) -> None:
        self._parts = parts
        self._writer = writer
        self._examiner = examiner
        self._version = ""
        self._version_at = float("-inf")

    async def handle(self, case: Case) -> float | None:
        """Report or fail the pod. Returns the loop time to come back at, None: on news only."""
        entry, record = case.entry, case.record
        version = await self._kubelet_version() if verdicts_of(record) else ""
        decision = self._writer.decide(case, version)
        if entry.refused:
            for key in (key for key, h in record.failing):
                self._parts.calls.unpin(*key)
            return await self._writer.report(case, entry.refused)
        if not decision.fails:
            self._writer.tell_outcome(case, decision, acted=not decision.would_fail)
            return await self._writer.report(case, decision.reason)
        if entry.suspended:
            return None
        for driver, uid in (key for key, h in record.failing if h.verdict and h.verdict.permanent):
            self._parts.calls.pin(driver, uid)
        again = self._wait(entry, decision)
        if again is None:
            return await self._fail(case)
        if again - self._parts.now() > SOON:
            note = "not failed yet: another pod of its owner was failed a short time ago"
            await self._writer.report(case, note)
        return again

    def _wait(self, entry: Entry, decision: Decision) -> float | None:
        """Return when to look again, None when now is the time."""
        now = self._parts.now()
        if now < decision.not_before:
            return decision.not_before
        if self._parts.calls.in_flight([claim.uid for claim in entry.claims or ()]):
            return now + BUSY
        return None

    async def _fail(self, known: Case) -> float | None:
        """Look at everything again and patch. Everything may have changed at each await."""
        kube, entry = self._parts.kube, known.entry
        try:
            pod = parse_pod(await kube.get_pod(known.pod.namespace, known.pod.name))
        except NotFound:
            entry.done = True
            return None
        if pod.uid != entry.uid or pod.ended:
            entry.done = True
            return None
        entry.claims = await read_claims(kube, pod)
        record = self._examiner.record(entry, pod)
        case = Case(entry, pod, record)
        decision = self._writer.decide(case, await self._kubelet_version())
        if not decision.fails:
            if record.retrying or not record.failing:
                return self._parts.now()  # a newer call: start over
            self._writer.tell_outcome(case, decision, acted=not decision.would_fail)
            return await self._writer.report(case, decision.reason)
        again = self._wait(entry, decision)
        if again is not None or entry.suspended or entry.gone:
            return again
        return await self._patch(case, decision)

    async def _patch(self, case: Case, decision: Decision) -> float | None:
        entry, pod, record = case.entry, case.pod, case.record
        statement = status.failing(record, note=decision.reason)
        bodies = status.conditions(pod, statement, verdicts=verdicts_of(record), wall=time.time())
        text = self._writer.annotation(case, outcome="FailPod", reason=decision.reason)
        patch = status.failed_patch(pod, bodies, text=statement.message, annotation=text)
        before = self._parts.rules.owner_failed_at(pod)
        self._parts.rules.set_owner_failed(pod, self._parts.now())
        try:
            await self._parts.kube.patch_pod_status(pod.namespace, pod.name, patch)
        except KubeError as exc:
            if not isinstance(exc, Unavailable):  # then it may have arrived all the same
                self._parts.rules.set_owner_failed(pod, before)
            return self._not_patched(entry, exc)
        self._parts.on_report("fail", "ok")
        log.warning("pod %s/%s failed: %s", pod.namespace, pod.name, statement.message)
        entry.failed = entry.done = True
        self._writer.tell_outcome(case, decision, acted=True)
        await self._writer.event(case, action="FailPod", note=decision.reason)
        return None

    def _not_patched(self, entry: Entry, exc: KubeError) -> float | None:
        self._parts.on_report("fail", type(exc).__name__.lower())
        if isinstance(exc, NotFound):
            entry.done = True
            return None
        if isinstance(exc, Conflict):
            entry.conflicts += 1
            if entry.conflicts > CONFLICTS:
                entry.refused = "not failed: the pod changed each time it was to be failed"
            return self._parts.now()
        if isinstance(exc, Denied | Invalid):
            log.warning("pod %s cannot be failed: %s", entry.uid, exc)
            entry.refused = f"not failed: the API server refused it ({str(exc)[:200]})"
            return self._parts.now()
        raise exc

    async def _kubelet_version(self) -> str:
        now = self._parts.now()
        if now - self._version_at > VERSION_AGE:
            try:
                node = await self._parts.kube.get_node(self._parts.rules.node)
                info = (node.get("status") or {}).get("nodeInfo") or {}
                self._version = str(info.get("kubeletVersion") or "")
            except (Denied, NotFound) as exc:
                log.warning("kubelet's version cannot be read, so no pod is failed: %s", exc)
                self._version = ""
            self._version_at = now
        return self._version
