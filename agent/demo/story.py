"""Plays the scenarios on two nodes at once, one without and one with the agent, and tells them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from agent.aio import Tasks
from agent.demo.periods import REAL_RESYNC, SHORTENED_BY
from agent.demo.scenarios import RULES, SCENARIOS, Scenario
from agent.demo.show import Printer
from agent.demo.stage import Stage
from agent.demo.world import World
from agent.errors import AgentError

INTRO = (
    "Two nodes on this machine, real sockets, no cluster and no network: a stand-in kubelet, "
    "scripted drivers and a small API server. One node has the agent in front of its drivers."
)
PERIODS = (
    f"Kubelet asks again {REAL_RESYNC[0]:.0f}-{REAL_RESYNC[1]:.0f} s after a failed prepare. Here "
    f"that is divided by {SHORTENED_BY}: "
    f"{REAL_RESYNC[0] / SHORTENED_BY:g}-{REAL_RESYNC[1] / SHORTENED_BY:g} s. "
    "The agent's own periods are the real ones."
)
Story = tuple[Scenario, list[Stage]]


class Demo:
    """Both nodes. `differs` is what did not go as told."""

    def __init__(self, root: Path, printer: Printer) -> None:
        self.without = World(root / "a")
        self.agent = World(root / "b")
        self.differs: list[str] = []
        self._printer = printer
        self._began = time.monotonic()

    async def start(self) -> None:
        """Bring up both nodes."""
        self._printer.line("dra-agent demo", "bold")
        self._printer.paragraph(INTRO)
        self._printer.paragraph(PERIODS)
        await asyncio.gather(*(self._node(world) for world in (self.without, self.agent)))
        self._printer.line()
        self._printer.line(f"The agent's status: {self.agent.agent_url}/debug/state")
        self._printer.line("   (until the last story kills the agent; --keep starts it again)")

    async def _node(self, world: World) -> None:
        await world.start()
        for driver, rules in RULES.items():
            world.script(driver, *rules)
        await asyncio.gather(*(world.start_driver(driver) for driver in RULES))
        if world is self.agent:
            await world.start_agent({"mode": "enforce"})

    async def play(self) -> None:
        """Play everything; each story is told as soon as it and those before it are over."""
        together = [one for one in SCENARIOS if not one.only_with_agent]
        tasks = Tasks()
        playing = [tasks.start(one.pod, self._play(one)) for one in together]
        try:
            for number, task in enumerate(playing, 1):
                self._tell(number, *await task)
        finally:
            await tasks.close()
        for number, one in enumerate(SCENARIOS, 1):
            if one.only_with_agent:
                self._tell(number, *await self._play(one))

    async def _play(self, scenario: Scenario) -> Story:
        stages = [Stage(self.agent, True, scenario.pod)]
        if not scenario.only_with_agent:
            stages.insert(0, Stage(self.without, False, scenario.pod))
        await asyncio.gather(*(self._on_stage(scenario, stage) for stage in stages))
        return scenario, stages

    async def _on_stage(self, scenario: Scenario, stage: Stage) -> None:
        try:
            await scenario.play(stage)
        except AgentError as error:
            stage.differs.append(str(error))
        stage.freeze()

    def _tell(self, number: int, scenario: Scenario, stages: list[Stage]) -> None:
        self._printer.line()
        self._printer.line(f"{number}. {scenario.title}", "bold")
        self._printer.paragraph(scenario.about, 3)
        for stage in stages:
            where = "with the agent" if stage.agent else "without the agent"
            self._printer.timeline(where, stage.lines)
            if stage.sum:
                self._printer.paragraph(stage.sum, 14, "bold")
            for text in stage.differs:
                self._printer.paragraph(f"NOT AS TOLD: {text}", 3, "red")
                self.differs.append(f"{number}. {scenario.title}, {where}: {text}")
        pod = self.agent.pod(scenario.pod)
        if pod is not None and self.agent.condition(scenario.pod):
            self._printer.pod(pod)

    async def end(self) -> None:
        """Say how it went."""
        seconds = time.monotonic() - self._began
        self._printer.line()
        if self.differs:
            self._printer.line(f"{len(self.differs)} thing(s) did not go as told:", "red")
            for text in self.differs:
                self._printer.paragraph(text, 3)
        else:
            self._printer.line(f"All went as told. {seconds:.0f} s.", "green")

    async def keep(self) -> None:
        """Bring the agent back, say where to look, and wait for Ctrl-C."""
        await self.agent.start_agent({"mode": "enforce"})
        state = self.agent.agent_url
        self._printer.line()
        self._printer.line("Still running, Ctrl-C ends it:")
        for what, url in (
            ("agent, state", f"{state}/debug/state"),
            ("agent, health", f"{state}/readyz?verbose"),
            ("agent, metrics", f"{state}/metrics"),
            ("API server, pods", f"{self.agent.api.url}/api/v1/pods"),
            ("API server, without agent", f"{self.without.api.url}/api/v1/pods"),
        ):
            self._printer.line(f"   {what:<27} {url}")
        self._printer.line(f"   {'sockets, logs':<27} {self.agent.root}")
        await asyncio.Event().wait()

    async def close(self) -> None:
        """End everything."""
        await asyncio.gather(self.without.close(), self.agent.close())
