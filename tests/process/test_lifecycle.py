"""Starting and ending of the agent's process."""

from __future__ import annotations

import json
import signal

import aiohttp
import pytest

from agent.demo.kubelet import REGISTRY
from agent.demo.processes import Child, until
from agent.demo.scenarios import BUSY
from agent.demo.script import Rule
from tests.support.process import BESIDE_AGENT, DRIVER, GPU, REAL_WAIT, agent_node, node

pytestmark = pytest.mark.timeout(90)


def lines(child: Child) -> list[str]:
    return child.text().splitlines()


async def test_a_second_agent_is_refused_and_told_who_is_there() -> None:
    async with agent_node() as world:
        assert world.agent is not None
        second = world.new_agent({}, name="second")
        await second.start()
        assert await second.wait(20) == 2
        assert str(world.agent.pid) in second.text()
        assert "Traceback" not in second.text()
        assert world.through_agent(DRIVER)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_lets_a_call_in_flight_end_and_leaves_no_sockets(
    number: signal.Signals,
) -> None:
    async with agent_node(Rule("p-gpu", delay=2.0), periods=REAL_WAIT) as world:
        assert world.agent is not None
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        world.agent.send(number)
        await world.wait_phase("p", "Running")
        assert await world.agent.wait(15) == 0
        assert len([one for one in world.kubelet.said if one.what == "prepare"]) == 1
        names = [path.name for path in (world.root / REGISTRY).iterdir()]
        assert names == [f"{DRIVER}-reg.sock"]
        world.add_pod("q", GPU)
        await world.wait_phase("q", "Running")


async def test_sigterm_ends_retries_with_the_drivers_last_words() -> None:
    async with agent_node(Rule("p-gpu", BUSY), periods=REAL_WAIT) as world:
        assert world.agent is not None
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 2)
        world.agent.send(signal.SIGTERM)
        # Kubelet's call itself lasts for a minute.
        await until(lambda: any(s.what == "failed" for s in world.kubelet.said), "it", limit=20)
        (said,) = [one.text for one in world.kubelet.said if one.what == "failed"]
        assert "resource temporarily unavailable" in said
        assert await world.agent.wait(15) == 0


async def test_a_second_sigterm_ends_it_at_once() -> None:
    async with agent_node(Rule("p-gpu", delay=60.0), periods=REAL_WAIT) as world:
        assert world.agent is not None
        world.add_pod("p", GPU)
        await world.wait_calls(DRIVER, 1)
        world.agent.send(signal.SIGTERM)
        await until(lambda: "SIGTERM" in world.agent.text(), "it to notice")  # type: ignore[union-attr]
        assert world.agent.returncode is None
        world.agent.send(signal.SIGTERM)
        assert await world.agent.wait(20) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("mode", "enforc", "mode"), ("retries", {}, "retries"), ("retry", {"margin": "3"}, "margin")],
)
async def test_a_bad_config_is_exit_2_and_nothing_is_started(
    key: str, value: object, told: str
) -> None:
    async with node(BESIDE_AGENT) as world:
        await world.start_driver(DRIVER)
        child = world.new_agent({key: value})
        await child.start()
        assert await child.wait(20) == 2
        assert told in child.text()
        assert "Traceback" not in child.text()
        assert len(list((world.root / REGISTRY).iterdir())) == 1
        assert world.api.requests == []


@pytest.mark.parametrize("content", ["garbage", "clusters: [{name: a, cluster: {server: 3}}]"])
async def test_a_bad_kubeconfig_is_exit_2_before_kubelet_hears_of_it(content: str) -> None:
    async with node(BESIDE_AGENT) as world:
        await world.start_driver(DRIVER)
        child = world.new_agent({})
        (world.root / "run" / "kubeconfig").write_text(content)
        await child.start()
        assert await child.wait(20) == 2
        assert "dra-agent: --kubeconfig: " in child.text()
        assert "starting" not in child.text()
        assert "Traceback" not in child.text()
        assert len(list((world.root / REGISTRY).iterdir())) == 1


async def test_every_problem_is_told_at_once() -> None:
    async with node(BESIDE_AGENT) as world:
        child = world.new_agent({"mode": "x", "taints": 1, "outcome": {"hold": 7}})
        await child.start()
        assert await child.wait(20) == 2
        for word in ("mode", "taints", "outcome.hold"):
            assert word in child.text()


async def test_health_metrics_and_state_are_served() -> None:
    async with agent_node() as world:
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        assert world.agent_url
        async with aiohttp.ClientSession(world.agent_url) as session:
            for path in ("/livez", "/readyz?verbose", "/healthz?verbose"):
                async with session.get(path) as answer:
                    assert answer.status == 200, await answer.text()
            async with session.get("/metrics") as answer:
                text = await answer.text()
            assert "dra_agent_" in text
            assert DRIVER in text
            async with session.get("/debug/state") as answer:
                assert DRIVER in json.dumps(await answer.json())


async def test_its_log_is_json_and_without_errors() -> None:
    async with agent_node() as world:
        assert world.agent is not None
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        await world.agent.end()
        for line in lines(world.agent):
            entry = json.loads(line)
            assert entry["severity"] in ("DEBUG", "INFO", "WARNING"), line
