"""Makes kubelet look at waiting pods again at once, by an annotation, when their cause is gone.

A sink of facts beside the reporter: `submit` only remembers; what is to be read and written is
done in tasks, so nothing here delays a call.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from agent import names
from agent.aio import Tasks
from agent.core.model import CallFact, DeviceState
from agent.core.nudge import Cause, Event, Last, Memory, Pace, concerned, freed, ripens
from agent.core.pods import Pod
from agent.kube.client import Kube
from agent.kube.errors import Conflict, KubeError, NotFound, Unavailable
from agent.kube.pods import PodStore
from agent.report.parts import read_claims
from agent.report.ports import CallsPort
from agent.settings.model import Nudge

log = logging.getLogger(__name__)

PARALLEL = 4
"""Pods read and written at the same time."""

BACKOFF = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts while the API server does not answer; kubelet repeats by itself."""

SYNC = 30.0
"""Seconds for which an event waits for the first list of pods."""

READS = 64
"""Pods whose claims are read for one event."""

_EARLY = 64  # events before the API is connected


_Key = tuple[str, Cause, frozenset[str], str]  # of a waiting task: driver, cause, devices, pod


class Sink(Protocol):
    """Takes facts; never blocks and never raises."""

    def submit(self, fact: CallFact) -> None:
        """Take a fact."""


class _Both:
    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def submit(self, fact: CallFact) -> None:
        for sink in self._sinks:
            sink.submit(fact)


class Nudger:
    """Takes events from the node side and facts from the proxy; `attach` gives it the API."""

    def __init__(
        self,
        settings: Nudge,
        calls: CallsPort,
        *,
        on_nudge: Callable[[str, str, str], None] = lambda driver, cause, result: None,
    ) -> None:
        """`on_nudge(driver, cause, result)`; result: ok, gone, refused or unavailable."""
        self._settings = settings
        self._calls = calls
        self._on_nudge = on_nudge
        self._api: tuple[Kube, PodStore] | None = None
        self._memory = Memory()
        self._pace = Pace(float(settings.min_between))
        self._numbers = itertools.count()
        self._early: deque[Event] = deque(maxlen=_EARLY)
        self._known: set[str] = set()  # drivers that were ready once
        self._slots = asyncio.Semaphore(PARALLEL)
        self._refused: set[str] = set()
        self._waiting: set[_Key] = set()
        self._tasks = Tasks()

    def attach(self, kube: Kube, pods: PodStore) -> None:
        """The API is connected: what happened before is looked at now."""
        self._api = kube, pods
        while self._early:
            self._start(self._early.popleft())

    @property
    def busy(self) -> bool:
        """True while an event is being looked at."""
        return len(self._tasks) > 0

    async def close(self) -> None:
        """End what still runs."""
        await self._tasks.close()

    # What happens

    def ready(self, driver: str, reason: str) -> None:
        """Kubelet has a generation of ours, for the first time or after it had none."""
        if driver in self._known:
            cause = Cause.DRIVER_BACK
        else:
            cause = Cause.AGENT_STARTED if reason == "start" else Cause.DRIVER_REGISTERED
        self._known.add(driver)
        self._happened(cause, driver)

    def driver_up(self, driver: str, up: bool) -> None:
        """The first instance is connected, or the last one lost."""
        if up and self._memory.failed(driver, broke=True):
            self._happened(Cause.FAULT_ENDED, driver)

    def beside(self, sink: Sink) -> Sink:
        """Return a sink that hands facts to both."""
        return _Both(self, sink)

    def submit(self, fact: CallFact) -> None:
        """Remember how a call ended. Never blocks, never raises."""
        if fact.operation != "prepare":
            done = [o for o in fact.outcomes if o.state is not DeviceState.FAILED]
            if fact.code == 0 and done:
                devices = self._memory.drop(fact.driver, [o.claim.uid for o in done])
                if self._memory.failed(fact.driver):
                    self._happened(Cause.CLAIM_UNPREPARED, fact.driver, devices)
        elif fact.final:
            self._memory.note(fact)
            well = any(o.state is DeviceState.PREPARED for o in fact.outcomes)
            if well and self._memory.failed(fact.driver, broke=True):
                self._happened(Cause.FAULT_ENDED, fact.driver)

    def _happened(self, cause: Cause, driver: str, devices: frozenset[str] = frozenset()) -> None:
        if not self._settings.enabled:
            return
        event = Event(cause, driver, next(self._numbers), time.time(), devices)
        if self._api is None:
            self._early.append(event)
        else:
            self._start(event)

    def _start(self, event: Event) -> None:
        self._tasks.start(f"nudge {event.cause} {event.driver}", self._look(event))

    # What is done about it

    async def _look(self, event: Event) -> None:
        assert self._api is not None
        _, pods = self._api
        loop = asyncio.get_running_loop()
        end = loop.time() + SYNC
        while not pods.synced and loop.time() < end:  # noqa: ASYNC110 - once, at start
            await asyncio.sleep(0.05)
        found = [pod for pod in pods.all() if self._concerned(event, pod)]
        for pod in found[:READS]:
            key = (event.driver, event.cause, event.devices, pod.uid)
            if key not in self._waiting:  # else that task will nudge it for this one, too
                self._waiting.add(key)
                name = f"nudge {pod.namespace}/{pod.name}"
                task = self._tasks.start(name, self._serve(event, pod.uid))
                task.add_done_callback(partial(self._served, key))

    def _words(self, event: Event, pod: Pod) -> tuple[Last, ...]:
        return self._memory.of(event.driver, pod.namespace, pod.claims)

    def _concerned(self, event: Event, pod: Pod) -> bool:
        known = self._words(event, pod)
        uids = [last.claim.uid for last in known]
        if self._calls.in_flight(uids):
            return False  # the driver is being asked anyway
        if any(self._calls.holding(event.driver, uid) for uid in uids):
            return False
        return concerned(event, pod, known)

    def _served(self, key: _Key, task: object) -> None:
        self._waiting.discard(key)

    async def _serve(self, event: Event, uid: str) -> None:
        pauses = iter(BACKOFF)
        while True:
            try:
                async with self._slots:
                    wait = await self._nudge(event, uid)
                if wait is None:
                    return
            except (Unavailable, Conflict) as error:
                wait = next(pauses, None)
                if wait is None:
                    self._said(event, "unavailable")
                    log.warning("pod %s is not nudged: %s", uid, error)
                    return
            except NotFound:
                self._said(event, "gone")
                return
            except KubeError as error:
                self._said(event, "refused")
                if str(error) not in self._refused and len(self._refused) < READS:
                    self._refused.add(str(error))
                    log.error("a pod cannot be nudged: %s. Check deploy/10-rbac.yaml.", error)
                return
            await asyncio.sleep(wait)

    async def _nudge(self, event: Event, uid: str) -> float | None:
        """Nudge the pod if it still waits. Returns seconds after which to look again."""
        assert self._api is not None
        kube, pods = self._api
        pod = pods.get(uid)
        if pod is None or not self._concerned(event, pod):
            return None
        if (wait := self._wait(event, pod)) > 0:
            return wait
        devices = [d for claim in await read_claims(kube, pod) for d in claim.devices]
        mine = frozenset(d.device for d in devices if d.driver == event.driver)
        if not mine or event.driver not in self._calls.served_drivers():
            return None
        known = self._words(event, pod)
        if event.cause is Cause.CLAIM_UNPREPARED and not freed(event, known, mine):
            return None
        if not self._concerned(event, pod) or self._pace.had(pod, event):
            return None
        if (wait := self._wait(event, pod)) > 0:  # another cause was quicker
            return wait
        self._pace.take(pod, event, asyncio.get_running_loop().time())
        note = {names.ANNOTATION_NUDGE: event.text}
        patch = {"metadata": {"uid": pod.uid, "annotations": note}}
        try:
            await kube.patch_pod_status(pod.namespace, pod.name, patch)
        except KubeError:
            self._pace.give_back(pod, event)
            raise
        self._said(event, "ok")
        extra = {"driver": event.driver}
        log.info("pod %s/%s nudged: %s", pod.namespace, pod.name, event.cause, extra=extra)
        return None

    def _wait(self, event: Event, pod: Pod) -> float:
        now, wall = asyncio.get_running_loop().time(), time.time()
        ripe = ripens(event, pod, float(self._settings.older_than)) - wall
        return max(self._pace.due(pod, now, wall) - now, ripe)

    def _said(self, event: Event, result: str) -> None:
        self._on_nudge(event.driver, event.cause.value, result)
