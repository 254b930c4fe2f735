"""A waiting pod starts when its cause is gone, not when kubelet would have looked again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent import names
from agent.demo.objects import Want
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.world import World
from tests.support.process import DRIVER, GPU, REAL_WAIT, agent_node, node

pytestmark = pytest.mark.timeout(120)

HOLD = {"drivers": {"driverAbsenceHold": "500ms"}}


@asynccontextmanager
async def waiting_node(*rules: Rule) -> AsyncIterator[World]:
    async with node(REAL_WAIT) as world:
        world.script(DRIVER, *rules)
        yield world


def cause(world: World, name: str = "p") -> str:
    pod = world.pod(name)
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


QUICK = replace(REAL_WAIT, deadline=6.0)
"""Kubelet's calls end soon; it makes no second one by itself."""
IN_USE = "prepare failed: gpu-0 is in use by another claim"


@asynccontextmanager
async def failed_once(*rules: Rule, **config: object) -> AsyncIterator[World]:
    """Pod `a` runs, and kubelet's one call for pod `p` failed; there are no rules any more."""
    async with agent_node(*rules, periods=QUICK, **config) as world:
        world.add_pod("a", GPU)
        await world.wait_phase("a", "Running")
        world.add_pod("p", GPU)
        await until(lambda: failures(world), "kubelet's first try", limit=20)
        world.script(DRIVER)
        world.add_pod("q", Want("gpu", "other.example.com", ("gpu-0",)))  # nobody serves it
        yield world


async def test_a_pod_runs_when_the_claim_that_has_its_device_is_unprepared() -> None:
    async with failed_once(Rule("p-gpu", IN_USE)) as world:
        assert (world.phase("p"), cause(world)) == ("Pending", "")
        world.kubelet.worker("a").exit()
        await runs_after(world, "claim-unprepared")
        assert cause(world, "q") == ""


async def test_a_pod_whose_call_broke_runs_when_another_call_works() -> None:
    async with failed_once(Rule("p-gpu", delay=60)) as world:
        assert (world.phase("p"), cause(world)) == ("Pending", "")
        world.add_pod("z", Want("gpu", DRIVER, ("gpu-1",)))
        await runs_after(world, "fault-ended")
        assert cause(world, "q") == ""


async def test_a_pod_whose_call_broke_runs_when_the_driver_is_back_before_it_is_given_up() -> None:
    async with agent_node(
        Rule("p-gpu", delay=60), periods=QUICK, drivers={"driverAbsenceHold": "60s"}
    ) as world:
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        await world.drivers[DRIVER].kill()
        await until(lambda: failures(world), "kubelet's first try", limit=20)
        world.script(DRIVER)
        await world.start_driver(DRIVER)
        await runs_after(world, "fault-ended")
