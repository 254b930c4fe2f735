"""A waiting pod starts when its cause is gone, not when kubelet would have looked again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent import names
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.world import World
from tests.support.process import DRIVER, GPU, REAL_WAIT, node

pytestmark = pytest.mark.timeout(120)

HOLD = {"drivers": {"driverAbsenceHold": "500ms"}}


@asynccontextmanager
async def waiting_node(*rules: Rule) -> AsyncIterator[World]:
    async with node(REAL_WAIT) as world:
        world.script(DRIVER, *rules)
        yield world


def cause(world: World) -> str:
    pod = world.pod("p")
    assert pod is not None
    note = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_NUDGE, "")
    return str(note).partition("@")[0]


def failures(world: World) -> int:
    return sum(1 for one in world.kubelet.said if (one.pod, one.what) == ("p", "failed"))


async def runs_after(world: World, expected: str) -> None:
    await world.wait_phase("p", "Running", limit=30)
    assert cause(world) == expected
    nudges = [write for write in world.api.writes if "status" in str(write)]
    assert len(nudges) >= 1
    assert failures(world) == 1


async def test_a_pod_that_met_no_driver_runs_when_the_driver_registers() -> None:
    async with waiting_node() as world:
        world.agent = world.new_agent({})
        await world.agent.start()
        await until(lambda: world.agent_url, "the agent to run", limit=20)
        world.add_pod("p", GPU)
        await until(lambda: failures(world), "kubelet's first try", limit=10)
        await world.start_driver(DRIVER)
        await runs_after(world, "driver-registered")


async def test_a_pod_whose_driver_was_away_for_long_runs_when_it_is_back() -> None:
    async with waiting_node() as world:
        await world.start_driver(DRIVER)
        await world.start_agent(HOLD)
        await world.drivers[DRIVER].kill()
        await until(lambda: not world.through_agent(DRIVER), "the agent to withdraw", limit=10)
        world.add_pod("p", GPU)
        await until(lambda: failures(world), "kubelet's first try", limit=10)
        await world.start_driver(DRIVER)
        await runs_after(world, "driver-back")


async def test_a_call_that_an_agents_death_cut_is_made_again_when_it_is_back() -> None:
    async with waiting_node(Rule("p-gpu", delay=60, times=1)) as world:
        await world.start_driver(DRIVER)
        await world.start_agent({})
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        await world.kill_agent()
        await until(lambda: failures(world), "the call to be cut", limit=10)
        await world.start_agent({"report": {"nudge": {"olderThan": "0s"}}})
        await runs_after(world, "agent-started")


async def test_without_nudges_it_waits_for_kubelet() -> None:
    async with waiting_node() as world:
        world.agent = world.new_agent({"report": {"nudge": {"enabled": False}}})
        await world.agent.start()
        await until(lambda: world.agent_url, "the agent to run", limit=20)
        world.add_pod("p", GPU)
        await until(lambda: failures(world), "kubelet's first try", limit=10)
        await world.start_driver(DRIVER)
        await until(lambda: world.through_agent(DRIVER), "the agent's registration", limit=15)
        assert (world.phase("p"), cause(world)) == ("Pending", "")
