"""One pod worker: syncs, waits as kubelet waits, tears down as kubelet tears down.

A container "starts" the moment its pod's devices are prepared; no container is run.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

from agent.aio import wait
from agent.demo.claims import Claims, PrepareError
from agent.demo.periods import Periods
from agent.demo.store import ApiError, Object, Store, timestamp

EVENT = "FailedPrepareDynamicResources"
TERMINAL = ("Failed", "Succeeded")
OWN_FIELDS = ("phase", "reason", "message", "containerStatuses")
Tell = Callable[[str, str, str], None]  # pod name, what, text


class PodWorker:
    """Owns one pod from its arrival to its end; run() returns when nothing is left to do."""

    def __init__(
        self, pod: Object, *, store: Store, claims: Claims, periods: Periods, tell: Tell
    ) -> None:
        meta = pod["metadata"]
        self.uid: str = meta["uid"]
        self.name: str = meta["name"]
        self.key = ("pods", meta["namespace"], meta["name"])
        self.status: Object = {k: pod["status"].get(k) for k in OWN_FIELDS}
        self._pod = pod  # as of the last update that woke the worker
        self._latest = pod  # as the API server has it
        self._store = store
        self._claims = claims
        self._periods = periods
        self._tell = tell
        self._wake = asyncio.Event()
        self._last_sync = -math.inf
        self._ending = ""  # "", "exited", "deleted", "gone" or a terminal phase
        self.ended = False
        if self.status["phase"] in TERMINAL:
            self.ended = not claims.needs_unprepare(self.uid)

    def update(self, pod: Object) -> None:
        """Take an UPDATE: spec, label, annotation or deletion changed. Wakes the worker."""
        self._pod = pod
        self.reconcile(pod)
        if pod["metadata"].get("deletionTimestamp"):
            self._end("deleted")
        elif pod["status"].get("phase") in TERMINAL:
            self._end(pod["status"]["phase"])
        self._wake.set()

    def reconcile(self, pod: Object) -> None:
        """Take a status-only change: kept, nobody is woken."""
        if _version(pod) > _version(self._latest):  # own writes come back late
            self._latest = pod

    def vanish(self) -> None:
        """Take the pod's removal from the API server."""
        self._end("gone")

    def exit(self) -> None:
        """Let the container end by itself with code 0."""
        self._end("exited")

    def _end(self, how: str) -> None:
        self._ending = self._ending or how
        self._wake.set()

    @property
    def started(self) -> bool:
        """True once a container ran."""
        return bool(self.status.get("containerStatuses"))

    async def run(self) -> None:
        """Sync until the pod has ended and its claims are unprepared."""
        while not self.ended:
            self._wake.clear()
            if self._ending:
                await self._terminate()
                self.ended = True
                return
            if not self.started:
                await self._sync()
            await wait(self._wake, random.uniform(*self._periods.resync))

    async def _sync(self) -> None:
        self._tell(self.name, "prepare", "")
        try:
            await self._claims.prepare(self._pod)
        except PrepareError as error:
            text = f"prepare dynamic resources: {error}"
            self._tell(self.name, "failed", text)
            self._event(f"Failed to prepare dynamic resources: {text}")
        else:
            running = {"running": {"startedAt": timestamp()}}
            self._set(phase="Running", containerStatuses=[self._container(running, started=True)])
            self._tell(self.name, "running", "")
        self._last_sync = asyncio.get_running_loop().time()

    async def _terminate(self) -> None:
        """Stop, unprepare until it works, then say how the pod ended."""
        held = self._pod
        if self._ending in TERMINAL:
            await self._relisted()
            # The first write of a teardown has the phase but neither reason nor message.
            self._set(phase=self._ending, reason=None, message=None)
        while True:
            try:
                await self._claims.unprepare(self.uid)
            except PrepareError as error:
                self._tell(self.name, "unprepare failed", f"unprepare dynamic resources: {error}")
                await asyncio.sleep(random.uniform(*self._periods.unprepare_retry))
                held = self._latest
            else:
                break
        self._tell(self.name, "unprepared", "")
        self._finish(held)

    def _finish(self, held: Object) -> None:
        if self._ending == "gone":
            return
        final: dict[str, Any] = {"phase": "Succeeded" if self._ending == "exited" else "Failed"}
        if self._ending in TERMINAL:
            final["phase"] = self._ending
            final["reason"] = held["status"].get("reason")
            final["message"] = held["status"].get("message")
        clean = self._ending == "exited"
        ended = {"exitCode": 0 if clean else 137, "reason": "Completed" if clean else "Error"}
        if not self.started:
            ended["reason"] = "ContainerStatusUnknown"
        self._set(
            **final, containerStatuses=[self._container({"terminated": ended}, started=False)]
        )
        if self._latest["metadata"].get("deletionTimestamp"):
            self._store.remove(self.key)

    async def _relisted(self) -> None:
        """Wait for the next look at the containers that is newer than the last sync."""
        period = self._periods.relist
        now = asyncio.get_running_loop().time()
        due = (math.floor(self._last_sync / period) + 1) * period if self._last_sync > 0 else now
        await asyncio.sleep(max(0.0, due - now))

    def put_back(self) -> bool:
        """Overwrite what others wrote over kubelet's own fields; True if there was anything."""
        api = self._latest["status"]
        differs = any(api.get(k) != self.status.get(k) for k in OWN_FIELDS)
        if differs and self._latest["metadata"]["uid"] == self.uid:
            self._write(self.status)
        return differs

    def _set(self, **fields: object) -> None:
        self.status = {**self.status, **fields}
        self._write(self.status)

    def _write(self, status: Object) -> None:
        patch = {"metadata": {"uid": self.uid}, "status": status}
        try:
            self._latest = self._store.patch_status(self.key, patch, by="kubelet")
        except ApiError as error:
            self._tell(self.name, "status", f"not written: {error}")

    def _event(self, message: str) -> None:
        event = {
            "metadata": {
                "name": f"{self.name}.{self._store.version + 1:x}",
                "namespace": self.key[1],
            },
            "type": "Warning",
            "reason": EVENT,
            "note": message,
            "reportingController": "kubelet",
            "regarding": {"kind": "Pod", "name": self.name, "uid": self.uid},
        }
        self._store.create("events", event, by="kubelet")

    def _container(self, state: Object, *, started: bool) -> Object:
        return {"name": "main", "started": started, "restartCount": 0, "state": state}


def _version(pod: Object) -> int:
    return int(pod["metadata"]["resourceVersion"])
