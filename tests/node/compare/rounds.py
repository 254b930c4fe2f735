"""Runs scenarios, both sides of all of them at the same time, and keeps what was seen as JSON."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .. import build
from ..harness.agent import Agent
from ..harness.cluster import Node
from .middle import Middle
from .sampler import Sampler
from .scenarios import Scenario
from .side import DIRECT, THROUGH, Side

OBSERVED = build.CACHE / "compare"
Raw = dict[str, Any]


@dataclass
class Pair:
    """What was seen of one scenario."""

    scenario: Scenario
    direct: Raw
    through: Raw


@dataclass
class Round:
    """Scenarios that share the restarts of the kubelet or of the agent."""

    node: Node
    namespace: str
    agent: Agent | None = None
    sides: list[tuple[Side, Iterator[None]]] = field(default_factory=list)

    def run(self, cases: Sequence[tuple[Scenario, Middle]], restarts: str = "") -> list[Pair]:
        sampler = Sampler(self.node, self.namespace)
        sampler.start()
        for each, between in cases:
            for middle in (None, between):
                side = Side(each.name, node=self.node, sampler=sampler, middle=middle)
                self.sides.append((side, each.run(side)))
        try:
            self._steps()
            if restarts:
                with self._ended(restarts, sampler):
                    self._steps()
                self._steps()
            sampler.count_calls()
        finally:
            sampler.stop()
            raws = [side.raw() for side, _ in self.sides]
            self._remove()
        pairs = zip(cases, raws[::2], raws[1::2], strict=True)
        return [Pair(scenario, direct, through) for (scenario, _), direct, through in pairs]

    def _steps(self) -> None:
        """Lets each side go on to its next yield."""

        def step(pair: tuple[Side, Iterator[None]]) -> None:
            side, run = pair
            if side.failure:
                return
            try:
                next(run, None)
            except Exception as error:  # noqa: BLE001  the other scenarios go on
                side.failure = f"{type(error).__name__}: {error}"[:2000]

        with ThreadPoolExecutor(len(self.sides)) as pool:
            list(pool.map(step, self.sides))

    @contextlib.contextmanager
    def _ended(self, restarts: str, sampler: Sampler) -> Iterator[None]:
        if restarts == "kubelet":
            sampler.kubelet_ends()
            self.node.kill_kubelet()
            yield
            for side, _ in self.sides:
                side.restarted = time.time()
            self.node.start_kubelet()
            return
        assert self.agent is not None
        if restarts == "agent killed":
            self.agent.kill()
        else:
            self.agent.stop(30)
        yield
        self.agent.start()

    def _remove(self) -> None:
        """Ends the pods, then the drivers, which the pods need to end."""
        for side, _ in self.sides:
            for driver in side.drivers:
                driver.heal()
                if not driver.process.running:
                    with contextlib.suppress(RuntimeError):  # one that cannot start
                        driver.start(registered=False)
        self.each_pod(self.node.api.delete)
        end = time.monotonic() + 60
        while self.each_pod(lambda path: None) and time.monotonic() < end:
            time.sleep(0.3)
        for side, _ in self.sides:
            for driver in side.drivers:
                driver.remove()

    def each_pod(self, act: Callable[[str], None]) -> int:
        pods = self.node.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        for pod in pods:
            act(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")
        return len(pods)


def keep(pair: Pair, run: str) -> None:
    """Writes raw observations to the cache, for people and for the table in docs/."""
    folder = OBSERVED / run
    folder.mkdir(parents=True, exist_ok=True)
    for raw in (pair.direct, pair.through):
        file = folder / f"{pair.scenario.name}.{raw['side']}.json"
        file.write_text(json.dumps(raw, indent=1, sort_keys=True))


def kept(run: str, scenario: Scenario) -> Pair | None:
    """What an earlier session saw."""
    files = [OBSERVED / run / f"{scenario.name}.{side}.json" for side in (DIRECT, THROUGH)]
    if not all(file.exists() for file in files):
        return None
    return Pair(scenario, *(json.loads(file.read_text()) for file in files))
