"""The pods of this node that have resource claims, kept current by list and watch.

Callbacks are plain functions, called in the event loop; one that raises is logged and does not
stop the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from agent.core.pods import Pod
from agent.kube.client import Kube
from agent.kube.errors import Expired, KubeError
from agent.kube.parse import has_claims, parse_pod

log = logging.getLogger(__name__)

OnPod = Callable[[Pod], None]

WATCH_SECONDS = (240.0, 300.0)
"""A watch lasts a random time between these, so that a fleet does not come back all at once."""

BACKOFF = (0.5, 30.0)
"""First and longest wait; doubles until a watch has lasted as long as the longest, random."""


class Pace:
    """How long to wait before the server is asked again: one that lists well but ends each watch
    at once must not be asked in a circle either."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wait = BACKOFF[0]

    def after(self, seconds: float, *, failed: bool) -> float:
        """Seconds to wait, when the latest list and watch went on for `seconds`."""
        if seconds > BACKOFF[1]:
            self._wait = BACKOFF[0]
        least = 0.5 if failed else 0.0
        wait = self._wait * (least + self._rng.random() * (1 - least))
        self._wait = min(self._wait * 2, BACKOFF[1])
        return wait


class PodStore:
    """Pods of one node by UID and by claim. `synced` after the first complete list."""

    def __init__(self, kube: Kube, node: str, *, rng: random.Random | None = None) -> None:
        self._kube = kube
        self._node = node
        self._rng = rng or random.Random()
        self._pods: dict[str, Pod] = {}
        self._by_claim: dict[tuple[str, str], set[str]] = {}
        self._version = ""
        self.synced = False
        self.failing = ""  # last error while the watch is down, for /readyz and /debug/state
        self.on_gone: list[OnPod] = []  # deleted, or ended for good
        self.on_deleting: list[OnPod] = []  # deletionTimestamp set
        self.on_started: list[OnPod] = []  # a container started since we first looked
        self.on_change: list[OnPod] = []  # anything, first look included

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> Pod | None:
        """Return the pod of that UID."""
        return self._pods.get(uid)

    def all(self) -> tuple[Pod, ...]:
        """Return all pods of this node that have resource claims."""
        return tuple(self._pods.values())

    def of_claim(self, namespace: str, name: str) -> tuple[Pod, ...]:
        """Return this node's pods that use a claim."""
        uids = self._by_claim.get((namespace, name), set())
        return tuple(self._pods[uid] for uid in sorted(uids))

    def only_its(self, pod: Pod) -> list[str]:
        """Names of the pod's claims that no other pod of this node uses, or goes on to use."""
        return [
            name
            for name in pod.claims
            if all(
                other.uid == pod.uid or other.deleting
                for other in self.of_claim(pod.namespace, name)
            )
        ]

    async def run(self) -> None:
        """List and watch until cancelled. Never ends by itself."""
        loop = asyncio.get_running_loop()
        pace = Pace(self._rng)
        while True:
            begun, failed = loop.time(), False
            try:
                if not self._version:
                    await self._list()
                self.failing = ""
                await self._watch()
            except Expired:
                self._version = ""
            except KubeError as exc:
                if not self.failing:
                    log.warning("pod watch: %s; trying again", exc)
                self.failing = str(exc)
                # A connection that broke may have lost the server's state: list again.
                self._version = ""
                failed = True
            await asyncio.sleep(pace.after(loop.time() - begun, failed=failed))

    async def _list(self) -> None:
        raw, version = await self._kube.list_pods(self._node)
        seen = set()
        for document in raw:
            pod = self._take(document)
            if pod is not None:
                seen.add(pod.uid)
        for uid in [uid for uid in self._pods if uid not in seen]:
            self._drop(uid)
        self._version = version
        if not self.synced:
            log.info("pod watch: %d pods with resource claims on this node", len(self._pods))
        self.synced = True

    async def _watch(self) -> None:
        seconds = self._rng.uniform(*WATCH_SECONDS)
        watch = self._kube.watch_pods(self._node, self._version, seconds)
        async with aclosing(watch) as events:  # type: ignore[type-var]  # a generator
            async for event in events:
                document = event.get("object") or {}
                meta = document.get("metadata") or {}
                if event.get("type") == "DELETED":
                    self._drop(str(meta.get("uid") or ""))
                elif event.get("type") in ("ADDED", "MODIFIED"):
                    self._take(document)
                self._version = str(meta.get("resourceVersion") or self._version)

    def _take(self, document: Mapping[str, Any]) -> Pod | None:
        """Add or replace a pod and say what changed. None: not a pod of interest."""
        if not has_claims(document):
            return None
        pod = parse_pod(document)
        old = self._pods.get(pod.uid)
        if pod.ended:
            if old is not None:
                self._drop(pod.uid, pod)
            return None
        if old is not None:
            self._unlink(old)
        self._pods[pod.uid] = pod
        for name in pod.claims:
            self._by_claim.setdefault((pod.namespace, name), set()).add(pod.uid)
        if pod == old:
            return pod
        self._call(self.on_change, pod)
        if pod.deleting and not (old and old.deleting):
            self._call(self.on_deleting, pod)
        # One that ran before we looked says nothing about calls that we might have seen.
        if pod.started and not (old and old.started) and (old or self.synced):
            self._call(self.on_started, pod)
        return pod

    def _drop(self, uid: str, last: Pod | None = None) -> None:
        old = self._pods.pop(uid, None)
        if old is not None:
            self._unlink(old)
            self._call(self.on_gone, last or old)

    def _unlink(self, pod: Pod) -> None:
        for name in pod.claims:
            uids = self._by_claim.get((pod.namespace, name))
            if uids is not None:
                uids.discard(pod.uid)
                if not uids:
                    del self._by_claim[pod.namespace, name]

    def _call(self, callbacks: list[OnPod], pod: Pod) -> None:
        for callback in callbacks:
            try:
                callback(pod)
            except Exception:
                log.exception("a pod callback failed")
