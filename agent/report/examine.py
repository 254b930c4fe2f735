"""Makes the record of one pod: what calls said, its claims, the surroundings, suspicions.

Everything here is read only after a failure.
"""

from __future__ import annotations

from agent.core.context import NOTHING
from agent.core.pods import Pod
from agent.core.record import PodRecord, build
from agent.report.entry import Case, Entry
from agent.report.parts import Parts, read_claims
from agent.report.surroundings import Surroundings


class Examiner:
    """One per reporter; keeps what it read for a short time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._around = Surroundings(parts)

    async def case(self, entry: Entry, pod: Pod) -> Case:
        """Join what calls said with the claims, which are read once per pod."""
        if entry.claims is None or len(entry.claims) < len(pod.claims):
            entry.claims = await read_claims(self._parts.kube, pod)
        record = self.record(entry, pod)
        if not record.failing:
            entry.context = NOTHING
        elif self._worth_it(entry, record):
            entry.looked_at = _failures(record)
            entry.context = await self._around.look(record, pod)
            record = self.record(entry, pod)
        return Case(entry, pod, record)

    def record(self, entry: Entry, pod: Pod) -> PodRecord:
        """Make the record from what is in memory, and count its failures."""
        parts = self._parts
        record = build(
            entry.claims or (),
            parts.book.histories,
            context=entry.context,
            limits=parts.rules.limits,
        )
        if not record.failing:
            return record
        now = parts.now()
        if parts.suspects.note(record, pod.owner.uid if pod.owner else "", now):
            parts.wake_all()  # others that failed by the same rule are in a new light now
        return parts.suspects.judge(record, now)

    def _worth_it(self, entry: Entry, record: PodRecord) -> bool:
        """A short trouble that is never written about costs no request, nor does old news."""
        if entry.looked_at == _failures(record):
            return False
        due = (entry.trouble_at or 0.0) + self._parts.rules.retrying_after
        return not record.retrying or self._parts.now() >= due


def _failures(record: PodRecord) -> tuple[object, ...]:
    return tuple((key, h.at, h.final, h.held) for key, h in record.failing)
