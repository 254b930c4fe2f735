"""Turns facts about calls into what people and controllers see in the API.

submit() only queues. One task takes facts off the queue and notes them (memory only), and each
pod that had trouble has a task of its own that writes: newest state wins, retries wait, and a
slow API server delays no other pod and no call. A pod whose devices never failed costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from agent import names
from agent.aio import Tasks
from agent.core import annotation
from agent.core.model import CallFact, DeviceState
from agent.core.pods import Pod
from agent.core.record import build
from agent.core.suspects import Suspects
from agent.kube.client import Kube
from agent.kube.pods import PodStore
from agent.report.book import Book
from agent.report.entry import Entry
from agent.report.hooks import Hooks
from agent.report.parts import Parts
from agent.report.policy import Rules
from agent.report.ports import CallsPort
from agent.report.worker import Worker
from agent.settings.model import AgentConfig, NodeIdentity

log = logging.getLogger(__name__)


class Reporter:
    """Owns the queue, the book of what calls said, and one entry per pod that had trouble."""

    def __init__(
        self,
        settings: AgentConfig,
        identity: NodeIdentity,
        kube: Kube,
        pods: PodStore,
        calls: CallsPort,
        *,
        hooks: Hooks | None = None,
    ) -> None:
        self._pods = pods
        self._book = Book()
        self._suspects = Suspects()
        self._parts = Parts(
            kube,
            pods,
            calls,
            book=self._book,
            rules=Rules(settings, identity),
            suspects=self._suspects,
            hooks=hooks or Hooks(),
            wake_all=self._wake_all,
        )
        self._worker = Worker(self._parts)
        self._queue: deque[CallFact] = deque()
        self._limit = settings.report.queue
        self._news = asyncio.Event()
        self._entries: dict[str, Entry] = {}
        self._tasks = Tasks()
        self.dropped = 0
        pods.on_change.append(self._pod_changed)
        pods.on_deleting.append(self._pod_gone)
        pods.on_gone.append(self._pod_gone)

    @property
    def queue_length(self) -> int:
        """Facts not yet looked at."""
        return len(self._queue)

    @property
    def pending(self) -> int:
        """Pods that may still be written to."""
        return len(self._entries)

    def submit(self, fact: CallFact) -> None:
        """Queue a fact. Never blocks, never raises; the oldest goes when the queue is full."""
        if len(self._queue) >= self._limit:
            self._queue.popleft()
            self.dropped += 1
            self._parts.on_report("fact", "dropped")
            if self.dropped == 1 or self.dropped % 1000 == 0:
                log.warning("reports: %d facts dropped, the queue is full", self.dropped)
        self._queue.append(fact)
        self._news.set()

    def cancel(self, driver: str) -> None:
        """Cancel each FailPod not yet sent that rests on this driver's words."""
        for uid, entry in self._entries.items():
            pod = self._pods.get(uid)
            if pod is None:
                continue
            found = self._book.of_names(pod.namespace, pod.claims)
            if any(key[0] == driver and h.state is DeviceState.FAILED for key, h in found):
                entry.suspended = True

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._queue:
                    self._note(self._queue.popleft())
        finally:
            await self._tasks.close()

    def state(self) -> list[dict[str, Any]]:
        """Return every pod with trouble and all its devices, for /debug/state."""
        found = []
        for uid, entry in self._entries.items():
            pod = self._pods.get(uid)
            record = build(
                entry.claims or (),
                self._book.histories,
                context=entry.context,
                limits=self._parts.rules.limits,
            )
            record = self._suspects.judge(record, self._parts.now())
            found.append(
                {
                    "uid": uid,
                    "namespace": pod.namespace if pod else "",
                    "name": pod.name if pod else "",
                    "refused": entry.refused,
                    "outcome": entry.outcome,
                    "devices": annotation.entries(record),
                }
            )
        return found

    def suspects(self) -> list[dict[str, object]]:
        """Return devices and drivers that several failures point at, for /debug/state."""
        return self._suspects.describe(self._parts.now())

    def _wake_all(self) -> None:
        for entry in self._entries.values():
            entry.wake.set()

    def _note(self, fact: CallFact) -> None:
        if fact.operation != "prepare":
            if fact.code == 0:
                for outcome in fact.outcomes:
                    if outcome.state is not DeviceState.FAILED:
                        self._book.drop(fact.driver, outcome.claim.uid)
            return
        self._book.add(fact)
        wanted = {outcome.claim.name for outcome in fact.outcomes}
        pods = {
            pod.uid: pod
            for outcome in fact.outcomes
            for pod in self._pods.of_claim(outcome.claim.namespace, outcome.claim.name)
        }
        for pod in pods.values():
            # A call is for one pod and names all its claims of the driver; where pods share a
            # claim, those that lack one of the others are not meant.
            if wanted <= set(pod.claims) and self._matters(pod):
                self._touch(pod, fact)

    def _matters(self, pod: Pod) -> bool:
        said = pod.condition(names.CONDITION_PREPARED)
        return (
            pod.uid in self._entries
            or (said is not None and said.status == "False")
            or self._book.troubled(pod.namespace, pod.claims)
        )

    def _touch(self, pod: Pod, fact: CallFact | None = None) -> None:
        """Make sure that the pod is looked at."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = Entry(pod.uid)
            self._tasks.start(f"report {pod.namespace}/{pod.name}", self._serve(entry))
        if fact is not None:
            entry.suspended = False
            if fact.final:
                entry.replied_at = max(entry.replied_at, fact.replied_at)
                entry.trouble_at = None
            elif entry.trouble_at is None:
                entry.trouble_at = fact.replied_at - fact.duration
        entry.wake.set()

    def _pod_changed(self, pod: Pod) -> None:
        if pod.deleting:
            return
        if pod.uid in self._entries:
            self._entries[pod.uid].wake.set()
        elif self._book.troubled(pod.namespace, pod.claims):
            # The watch was later than the call; after an outage the pod may even run by now.
            self._touch(pod)
        elif pod.started:
            said = pod.condition(names.CONDITION_PREPARED)
            if said is not None and said.status == "False":
                self._touch(pod)
            else:
                self._book.drop_names(pod.namespace, self._parts.pods.only_its(pod))

    def reconfigure(self, settings: AgentConfig) -> None:
        """Go by changed settings from the next decision on."""
        self._parts.rules.update(settings)

    def _pod_gone(self, pod: Pod) -> None:
        entry = self._entries.pop(pod.uid, None)
        if entry is not None:
            entry.gone = True
            entry.wake.set()
        self._book.drop_names(pod.namespace, self._parts.pods.only_its(pod))

    async def _serve(self, entry: Entry) -> None:
        try:
            await self._worker.work(entry)
        finally:
            if self._entries.get(entry.uid) is entry:
                del self._entries[entry.uid]
