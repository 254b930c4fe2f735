"""Finds out that kubelet calls a driver directly although this agent serves it.

Evidence: a container of a pod of this node started, a claim of the pod has a device of a driver
we serve, and no prepare of that claim passed us. Then the agent's registration is renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.aio import Tasks
from agent.core.pods import Pod
from agent.kube.client import Kube
from agent.kube.errors import KubeError
from agent.kube.parse import parse_claim
from agent.kube.pods import PodStore
from agent.report.ports import CallsPort

log = logging.getLogger(__name__)

PAUSE = 30.0
"""Seconds between two renewals of one driver for this reason: a renewal takes effect in 2-4 s."""

PENDING = 64
"""Claims waiting to be read; more say nothing new."""


class BypassWatch:
    """Subscribes to the pod store; `renew(driver, "bypass")` is called on evidence."""

    def __init__(
        self,
        kube: Kube,
        pods: PodStore,
        calls: CallsPort,
        *,
        passed: Callable[[str, str], bool],
        renew: Callable[[str, str], None],
    ) -> None:
        self._kube = kube
        self._calls = calls
        self._passed = passed
        self._renew = renew
        self._renewed_at: dict[str, float] = {}
        self._asked: set[tuple[str, str]] = set()
        self._tasks = Tasks()
        self.found: dict[str, int] = {}  # driver -> claims that passed us by
        pods.on_started.append(self._started)

    def recent(self, driver: str) -> bool:
        """True for a while after evidence, which is what the mending takes at most."""
        now = asyncio.get_running_loop().time()
        return now - self._renewed_at.get(driver, -PAUSE) < PAUSE

    async def close(self) -> None:
        """End what still runs."""
        await self._tasks.close()

    def _started(self, pod: Pod) -> None:
        if not self._due(self._calls.served_drivers()):
            return  # nothing would follow: spare the request
        for name in pod.claims:
            key = (pod.namespace, name)
            if self._passed(*key) or key in self._asked or len(self._asked) >= PENDING:
                continue
            self._asked.add(key)
            self._tasks.start(f"bypass {pod.namespace}/{name}", self._look(*key))

    async def _look(self, namespace: str, name: str) -> None:
        try:
            claim = parse_claim(await self._kube.get_claim(namespace, name))
        except KubeError as exc:
            log.debug("bypass: claim %s/%s: %s", namespace, name, exc)
            return
        finally:
            self._asked.discard((namespace, name))
        if self._passed(namespace, name):
            return
        now = asyncio.get_running_loop().time()
        for driver in sorted(self._due(claim.drivers & self._calls.served_drivers())):
            self._renewed_at[driver] = now
            self.found[driver] = self.found.get(driver, 0) + 1
            log.warning(
                "%s: kubelet prepared claim %s/%s without the agent, which registers again",
                driver,
                namespace,
                name,
            )
            self._renew(driver, "bypass")

    def _due(self, drivers: frozenset[str]) -> frozenset[str]:
        now = asyncio.get_running_loop().time()
        return frozenset(d for d in drivers if now - self._renewed_at.get(d, -PAUSE) >= PAUSE)
