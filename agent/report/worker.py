"""One pod's turn: looks at what is known of it and lets the writer or the failer act."""

from __future__ import annotations

import asyncio
import logging
import random

from agent.aio import wait
from agent.kube.errors import Conflict, KubeError, NotFound, Unavailable
from agent.report.entry import Entry
from agent.report.examine import Examiner
from agent.report.fail import Failer
from agent.report.parts import Parts
from agent.report.writer import Writer

log = logging.getLogger(__name__)

BACKOFF = (0.5, 30.0)
"""First and longest wait after the API server did not answer; doubles, half of it random."""

PARALLEL = 4
"""Pods written at the same time."""

_REFUSALS = 100  # texts remembered, so that each is logged once


class Worker:
    """Serves all entries; each runs in a task of its own."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._writer = Writer(parts)
        self._examiner = Examiner(parts)
        self._failer = Failer(parts, self._writer, self._examiner)
        self._slots = asyncio.Semaphore(PARALLEL)
        self._refusals: set[str] = set()

    async def work(self, entry: Entry) -> None:
        """Look at one pod again and again until nothing is left to say."""
        wait = BACKOFF[0]
        while True:
            entry.wake.clear()
            entry.done = False
            again: float | None = None
            try:
                async with self._slots:
                    again = await self._look(entry)
                wait = BACKOFF[0]
            except (Unavailable, Conflict) as exc:
                self._parts.on_report("any", "unavailable")
                first = wait == BACKOFF[0]
                level = logging.WARNING if first else logging.DEBUG
                log.log(level, "report of pod %s waits: %s", entry.uid, exc)
                await asyncio.sleep(wait * (0.5 + random.random() / 2))
                wait = min(wait * 2, BACKOFF[1])
                continue
            except NotFound:
                entry.done = True
            except KubeError as exc:
                self._refused(exc)
            # News that came while the last word was being written starts another round.
            if entry.done and not entry.wake.is_set():
                return
            await self._until(entry.wake, again)

    async def _look(self, entry: Entry) -> float | None:
        """Act once. Returns the loop time to come back at, None: on news only."""
        pod = self._parts.pods.get(entry.uid)
        if pod is None or pod.deleting or entry.gone or entry.failed:
            entry.done = True
            return None
        pod = entry.over(pod)
        case = await self._examiner.case(entry, pod)
        record = case.record
        if record.recovered(self._parts.calls.served_drivers()):
            await self._writer.recovered(case)
            entry.done = True
            return None
        if pod.started:
            await self._writer.bypassed(case)
            self._parts.book.drop_names(pod.namespace, self._parts.pods.only_its(pod))
            entry.done = True
            return None
        if not record.failing:
            return None
        if record.retrying:
            return await self._writer.retrying(case)
        return await self._failer.handle(case)

    def _refused(self, exc: KubeError) -> None:
        self._parts.on_report("any", "refused")
        text = str(exc)
        if text not in self._refusals and len(self._refusals) < _REFUSALS:
            self._refusals.add(text)
            log.error("the API server refuses our writes: %s. Check deploy/10-rbac.yaml.", text)

    async def _until(self, wake: asyncio.Event, again: float | None) -> None:
        timeout = None if again is None else max(0.0, again - self._parts.now())
        await wait(wake, timeout)
