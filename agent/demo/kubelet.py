"""The stand-in kubelet: real sockets and calls, pods that run nothing.

It does what kubelet 1.37.2 does between a pod's arrival and its devices, as far as a driver or
the API server can see it, with the periods it is given. What it leaves out: checkpoints, static
pods, health streams, the periodic unprepare of forgotten claims.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.aio import Tasks
from agent.demo.claims import Claims
from agent.demo.periods import REAL, Periods
from agent.demo.plugins import Plugins
from agent.demo.pods import PodWorker
from agent.demo.store import Object, Store

REGISTRY = "plugins_registry"
PLUGINS = "plugins"


@dataclass(frozen=True, slots=True)
class Said:
    """One thing kubelet did. `pod` is empty for registrations; `wall` is unix seconds."""

    pod: str
    what: str
    text: str
    wall: float = field(default_factory=time.time)


class Kubelet:
    """Serves the pods of one node. start() and close(); `said` is what happened so far.

    `after`: the closed one that this one is the restart of; it takes over what kubelet keeps in
    its checkpoint, which is every claim, but not that it was prepared.
    """

    def __init__(
        self,
        root: Path,
        store: Store,
        *,
        node: str,
        periods: Periods = REAL,
        on_said: Callable[[Said], None] | None = None,
        after: Kubelet | None = None,
    ) -> None:
        for name in (REGISTRY, PLUGINS):
            (root / name).mkdir(parents=True, exist_ok=True, mode=0o750)
        self.said: list[Said] = []
        self.node = node
        self.plugins = Plugins(
            root / REGISTRY, periods=periods, tell=lambda text: self._tell("", "plugin", text)
        )
        self.claims = Claims(store, self.plugins, deadline=periods.deadline)
        for key, info in (after.claims.cache if after else {}).items():
            self.claims.cache[key] = replace(info, prepared=False)
        self.pods: dict[str, PodWorker] = {}  # by uid
        self._store = store
        self._periods = periods
        self._seen: dict[str, Object] = {}
        self._tasks = Tasks()
        self._on_said = on_said

    def start(self) -> None:
        """Begin to watch sockets and pods."""
        self._tasks.start("plugins", self.plugins.run())
        self._tasks.start("pods", self._follow())
        self._tasks.start("status manager", self._keep_status())

    async def close(self) -> None:
        """End at once, as a killed kubelet would: connections drop, pods stay as they are."""
        await self._tasks.close()
        await self.plugins.close()

    def worker(self, name: str) -> PodWorker:
        """The newest worker of a pod of that name."""
        return [worker for worker in self.pods.values() if worker.name == name][-1]

    async def _follow(self) -> None:
        since = self._store.version
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") == self.node:
                self._dispatch(pod["metadata"]["uid"], pod)
        async for change in self._store.watch("pods", since):
            pod = change.object
            if pod["spec"].get("nodeName") != self.node:
                continue
            uid = pod["metadata"]["uid"]
            if change.kind == "DELETED":
                self._seen.pop(uid, None)
                if uid in self.pods:
                    self.pods[uid].vanish()
            else:
                self._dispatch(uid, pod)

    def _dispatch(self, uid: str, pod: Object) -> None:
        old = self._seen.get(uid)
        self._seen[uid] = pod
        worker = self.pods.get(uid)
        if worker is None:
            worker = self.pods[uid] = PodWorker(
                pod,
                store=self._store,
                claims=self.claims,
                periods=self._periods,
                tell=self._tell,
            )
            self._tasks.start(f"pod {worker.name}", worker.run())
        elif old is None or _semantic(old) != _semantic(pod):
            worker.update(pod)
        else:
            worker.reconcile(pod)

    async def _keep_status(self) -> None:
        while True:
            await asyncio.sleep(self._periods.status)
            for worker in self.pods.values():
                if worker.uid in self._seen and worker.put_back():
                    self._tell(worker.name, "reverted", "status put back to what kubelet has")

    def _tell(self, pod: str, what: str, text: str) -> None:
        said = Said(pod, what, text)
        self.said.append(said)
        if self._on_said is not None:
            self._on_said(said)


def _semantic(pod: Object) -> tuple[object, ...]:
    """The parts whose change wakes a pod worker; a change of anything else does not."""
    meta = pod["metadata"]
    return (
        pod["spec"],
        meta.get("labels"),
        meta.get("annotations"),
        meta.get("deletionTimestamp"),
        meta.get("deletionGracePeriodSeconds"),
    )
