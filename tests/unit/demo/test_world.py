from __future__ import annotations

import signal

import yaml

from agent import names
from agent.demo.script import Rule
from tests.support.process import DRIVER, GPU, driver, node


async def test_devices_in_the_drivers_answer_are_those_of_the_allocation() -> None:
    async with node() as world, driver(world):
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        (info,) = world.kubelet.claims.cache.values()
        (device,) = info.devices[DRIVER]
        assert (device.requests, device.pool, device.device) == (("gpu-0",), "node-a", "gpu-0")


async def test_a_driver_process_that_is_killed_leaves_a_call_without_an_end() -> None:
    async with node() as world:
        world.script(DRIVER, Rule("p", delay=60))
        await world.start_driver(DRIVER)
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        world.drivers[DRIVER].send(signal.SIGKILL)
        await world.drivers[DRIVER].wait()
        assert [call.ended for call in world.calls(DRIVER)] == [0.0]
        world.script(DRIVER)
        await world.start_driver(DRIVER)
        await world.wait_phase("p", "Running")


async def test_an_agents_files_and_command_line() -> None:
    async with node() as world:
        child = world.new_agent({"mode": "enforce"}, kubeconfig=False)
        assert "--kubeconfig" not in child.arguments
        file = child.arguments[child.arguments.index("--config") + 1]
        config = yaml.safe_load((world.root / "run" / file).read_text())
        assert (config["kind"], config["mode"]) == (names.CONFIG_KIND, "enforce")
        assert world.agent_url == ""
        world.new_agent({}).output.write_text(
            '{"msg": "http listening", "host": "127.0.0.1", "port": 123}\n'
        )
        assert world.agent_url == "http://127.0.0.1:123"


async def test_what_is_gone_has_no_phase_and_no_condition() -> None:
    async with node() as world, driver(world):
        assert (world.pod("x"), world.phase("x"), world.condition("x")) == (None, "", {})
        assert not world.through_agent(DRIVER)
