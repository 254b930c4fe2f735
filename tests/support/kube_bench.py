"""A reporter with all its neighbours: a real HTTP API server, a pod store, pretended calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from agent import names
from agent.aio import Tasks
from agent.core.context import InFlight
from agent.core.model import CallFact
from agent.kube.client import Kube
from agent.kube.pods import PodStore
from agent.report.hooks import Hooks
from agent.report.reporter import Reporter
from agent.settings.model import AgentConfig, NodeIdentity
from tests.support.kube_api import NODE, KubeApi, eventually, make_claim, make_pod
from tests.support.kube_records import GPU, fact

FAST = {"failDelay": 0.05, "minBetweenFailures": 0.3}


class Calls:
    """Satisfies CallsPort."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.pinned: set[tuple[str, str]] = set()
        self.held: set[tuple[str, str]] = set()
        self.served = {GPU}
        self.running: list[InFlight] = []
        self.waiting: set[tuple[str, str, str]] = set()

    def in_flight(self, claim_uids: Iterable[str]) -> bool:
        return bool(self.busy & set(claim_uids))

    def pin(self, driver: str, claim_uid: str) -> None:
        self.pinned.add((driver, claim_uid))

    def unpin(self, driver: str, claim_uid: str) -> None:
        self.pinned.discard((driver, claim_uid))

    def served_drivers(self) -> frozenset[str]:
        return frozenset(self.served)

    def active(self, driver: str) -> list[InFlight]:
        return self.running

    def holding(self, driver: str, claim_uid: str) -> bool:
        return (driver, claim_uid) in self.held

    def blocked(self, driver: str, claim_uid: str, by: str) -> None:
        self.waiting.add((driver, claim_uid, by))


class Bench:
    def __init__(self, api: KubeApi, kube: Kube, config: AgentConfig) -> None:
        self.api, self.kube, self.calls, self.tasks = api, kube, Calls(), Tasks()
        self.pods = PodStore(kube, NODE, rng=random.Random(1))
        self.told: list[tuple[str, str]] = []
        self.escalations: list[tuple[str, str]] = []
        self.outcomes: list[tuple[str, str, bool, str]] = []  # driver, action, acted, culprit
        self.reporter = Reporter(
            config,
            NodeIdentity(node_name=NODE),
            kube,
            self.pods,
            self.calls,
            hooks=Hooks(
                lambda kind, result: self.told.append((kind, result)),
                lambda driver, rule: self.escalations.append((driver, rule)),
                lambda *outcome: self.outcomes.append(outcome),
            ),
        )

    async def run(self) -> None:
        self.tasks.start("pods", self.pods.run())
        self.tasks.start("reporter", self.reporter.run())
        await eventually(lambda: self.pods.synced)

    async def pod(self, name: str, *devices: str, owner: str = "", claims: int = 1) -> None:
        """Make a pod with claims named <pod>-0 …, each with the devices given."""
        made = [f"{name}-{i}" for i in range(claims)]
        for claim in made:
            self.api.put_claim(make_claim(claim, name, *(devices or ("gpu-0",))))
        await self.api.put_pod(make_pod(name, *made, owner=owner))
        await eventually(lambda: self.pods.get(f"uid-{name}"))

    def submit(self, *outcomes: Any, **more: Any) -> CallFact:
        now = asyncio.get_running_loop().time()
        made = fact(*outcomes, **{"replied_at": now, **more})
        self.reporter.submit(made)
        return made

    async def quiet(self) -> None:
        """Wait until the reporter has nothing in hand: its own tasks wait for news."""
        await eventually(lambda: not self.reporter.queue_length)
        for _ in range(3):
            seen = -1
            while seen != len(self.api.seen):
                seen = len(self.api.seen)
                await asyncio.sleep(0.05)

    def prepared(self, pod: str) -> dict[str, Any]:
        return self.api.condition(pod, names.CONDITION_PREPARED)

    def phase(self, pod: str) -> str:
        return str(self.api.pod(pod)["status"]["phase"])


def config(mode: str = "enforce", **sections: Any) -> AgentConfig:
    document = {
        "mode": mode,
        "outcome": {**FAST, **sections.pop("outcome", {})},
        "report": {"retryingAfter": 0.1, **sections.pop("report", {})},
        **sections,
    }
    return msgspec.convert(document, AgentConfig, dec_hook=lambda kind, value: kind(value))


@asynccontextmanager
async def bench(folder: Path, settings: AgentConfig) -> AsyncIterator[Bench]:
    api = KubeApi()
    api.put_node()
    await api.start()
    kube = await Kube.open(kubeconfig=api.kubeconfig(folder))
    assert kube is not None
    made = Bench(api, kube, settings)
    await made.run()
    try:
        yield made
    finally:
        await made.tasks.close()
        await kube.close()
        await api.stop()
