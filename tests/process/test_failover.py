"""Agent, driver and kubelet die and come back, each as a real process or connection."""

from __future__ import annotations

import signal

import pytest

from agent import names
from agent.demo.objects import Want
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.world import World
from tests.support.process import DRIVER, GPU, REAL_WAIT, agent_node

pytestmark = pytest.mark.timeout(120)


def want(number: int) -> Want:
    return Want("gpu", DRIVER, (f"gpu-{number}",))


async def through_agent(world: World, limit: float = 30.0) -> None:
    await until(lambda: world.through_agent(DRIVER), "calls to go through the agent", limit=limit)


async def test_a_killed_agent_is_not_missed() -> None:
    async with agent_node(periods=REAL_WAIT) as world:
        world.add_pod("old", GPU)
        await world.wait_phase("old", "Running")
        await world.kill_agent()
        world.add_pod("new", want(1))
        await world.wait_phase("new", "Running")
        world.kubelet.worker("old").exit()
        await world.wait_phase("old", "Succeeded")
        # Kubelet asked for each once, and the driver got it.
        did = [(one.pod, one.what) for one in world.kubelet.said]
        assert not [one for one in did if "failed" in one[1]]
        assert did.count(("new", "prepare")) == len(world.calls(DRIVER, pod="new")) == 1
        assert len(world.calls(DRIVER, names.UNPREPARE, "old")) == 1
        assert world.kubelet.plugins.wiped == []


async def test_an_agent_that_comes_back_is_in_the_way_again() -> None:
    async with agent_node() as world:
        await world.kill_agent()
        await until(lambda: not world.through_agent(DRIVER), "the direct way")
        await world.start_agent({})
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        left = sorted(path.name for path in (world.root / "plugins_registry").iterdir())
        assert len(left) == 2, left  # what the dead one left is gone
        assert world.kubelet.plugins.wiped == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restarted_driver_is_behind_the_agent_again(number: signal.Signals) -> None:
    async with agent_node() as world:
        world.add_pod("old", GPU)
        await world.wait_phase("old", "Running")
        world.drivers[DRIVER].send(number)
        await world.drivers[DRIVER].wait()
        await world.start_driver(DRIVER)
        world.add_pod("new", want(1))
        await world.wait_phase("new", "Running", limit=30)
        await through_agent(world)
        world.kubelet.worker("old").exit()
        await world.wait_phase("old", "Succeeded")
        assert world.kubelet.plugins.wiped == []


async def test_a_driver_killed_during_a_prepare_costs_no_second_kubelet_call() -> None:
    hold = {"driverAbsenceHold": "50s"}  # a Python process takes a while to be back
    async with agent_node(Rule("p-gpu", delay=60), periods=REAL_WAIT, drivers=hold) as world:
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        world.drivers[DRIVER].send(signal.SIGKILL)
        await world.drivers[DRIVER].wait()
        world.script(DRIVER)
        await world.start_driver(DRIVER)
        await world.wait_phase("p", "Running", limit=30)
        assert len([one for one in world.kubelet.said if one.what == "prepare"]) == 1


async def test_a_driver_that_stays_away_fails_the_call_and_loses_its_slices() -> None:
    async with agent_node(Rule("p-gpu", delay=60), drivers={"driverAbsenceHold": "1s"}) as world:
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        world.drivers[DRIVER].send(signal.SIGKILL)
        await until(lambda: any(s.what == "failed" for s in world.kubelet.said), "the failure")
        (failed,) = [one.text for one in world.kubelet.said if one.what == "failed"]
        assert "code = Unavailable" in failed
        await until(lambda: world.kubelet.plugins.wiped == [DRIVER], "the wipe", limit=20)


async def test_a_new_instance_of_the_driver_takes_over() -> None:
    async with agent_node() as world:
        await world.start_driver(DRIVER, instance="two", wait=False)
        log = world.options(DRIVER).log
        await until(lambda: "notified" in log.read_text(), "its registration")
        world.drivers[DRIVER].send(signal.SIGTERM)
        await world.drivers[DRIVER].wait()
        await through_agent(world)
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        assert len(world.calls(DRIVER)) == 1


async def test_a_restarted_kubelet_calls_through_the_agent_again() -> None:
    async with agent_node() as world:
        world.add_pod("old", GPU)
        await world.wait_phase("old", "Running")
        await world.restart_kubelet()
        await through_agent(world)
        world.add_pod("new", want(1))
        await world.wait_phase("new", "Running")
        world.kubelet.worker("old").exit()
        await world.wait_phase("old", "Succeeded")
        assert len(world.calls(DRIVER, pod="old")) == 1
