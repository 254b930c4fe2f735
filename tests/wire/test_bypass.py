"""kubelet calls a driver itself although the agent serves it: found, mended, said once, counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from agent import names
from agent.core.model import Status
from agent.demo.driver import ScriptedDriver
from agent.demo.objects import Want
from agent.demo.processes import until
from agent.demo.world import World
from agent.rpc.call import Answer, Request
from tests.support.process import BESIDE_AGENT, DRIVER
from tests.support.process import node as world_node
from tests.wire import build, harness

pytestmark = pytest.mark.timeout(60)

# Kubelet's back-off for a failing registration is 0.5 s to 122 s; the agent's renewals come after
# 2 s, 10 s and 150 s. Here kubelet tries the driver again when the test says so, which is when
# the agent is done with its renewals.
KUBELET = replace(BESIDE_AGENT, register_backoff=(600.0, 600.0))
RENEWALS = {
    "kind": "overlay",
    "overlay": {"renewDelay": "100ms", "renewAgain": ["300ms", "600ms"], "retireAfter": "1s"},
}


class Failing(ScriptedDriver):
    """A driver whose registration methods fail while they are in `failing`."""

    failing: frozenset[str] = frozenset()

    async def _get_info(self, request: Request) -> Answer:
        if "GetInfo" in self.failing:
            return Answer(status=Status(14, "still warming up"))
        return await super()._get_info(request)

    async def _notified(self, request: Request) -> Answer:
        if "Notify" in self.failing:
            return Answer(status=Status(14, "not now"))
        return await super()._notified(request)


@asynccontextmanager
async def failing(method: str) -> AsyncIterator[tuple[World, Failing]]:
    async with world_node(KUBELET) as world:
        await world.start_agent({"registration": RENEWALS}, wait=False)
        await until(lambda: world.agent_url, "the agent")
        world.script(DRIVER)
        driver = Failing(world.options(DRIVER))
        driver.failing = frozenset([method])
        await driver.start()
        try:
            yield world, driver
        finally:
            await driver.close()


async def page(world: World, path: str) -> str:
    async with aiohttp.ClientSession(world.agent_url) as session, session.get(path) as answer:
        return await answer.text()


async def ready(world: World) -> None:
    async with asyncio.timeout(10), aiohttp.ClientSession(world.agent_url) as session:
        while (await session.get("/readyz")).status != 200:
            await asyncio.sleep(0.05)


async def bypasses(world: World) -> float:
    """Of the driver, as the agent counted them."""
    wanted = f'dra_agent_bypassed_prepares_total{{driver_name="{DRIVER}"}} '
    for line in (await page(world, "/metrics")).splitlines():
        if line.startswith(wanted):
            return float(line.removeprefix(wanted))
    return 0.0


def want(number: int) -> Want:
    return Want("gpu", DRIVER, (f"gpu-{number}",))


def endpoints(world: World) -> list[str]:
    """In the order in which kubelet registered them; the last one is called."""
    return [plugin.endpoint for plugin in world.kubelet.plugins.of(DRIVER)]


def failed(world: World) -> bool:
    """True when kubelet could not register the driver."""
    return any("RegisterPlugin error" in one.text for one in world.kubelet.said)


async def settled(world: World) -> None:
    """Wait until the agent has no renewal left to make and kubelet has registered all of them."""
    async with asyncio.timeout(20):
        while True:
            links = json.loads(await page(world, "/debug/state"))["registration"]["links"]
            made = [each["endpoint"] for link in links for each in link["generations"]]
            left = [link for link in links if link["renewalsIn"]]
            if made and not left and set(made) <= set(endpoints(world)):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("method", ["Notify", "GetInfo"])
async def test_a_driver_that_becomes_the_newest_long_after(method: str) -> None:
    async with failing(method) as (world, driver):
        own = str(world.options(DRIVER).endpoint)
        await until(lambda: failed(world), "kubelet's first try")
        driver.failing = frozenset()
        await settled(world)
        assert own not in endpoints(world)
        world.kubelet.plugins._backoff.clear()
        await until(lambda: own in endpoints(world), "the driver's registration", limit=20)
        assert endpoints(world)[-1] == own  # so kubelet calls the driver from now on
        await ready(world)  # it sees pods

        world.add_pod("past", want(0))
        await world.wait_phase("past", "Running")
        assert len(world.calls(DRIVER)) == 1
        await until(lambda: world.through_agent(DRIVER), "the agent to be the newest again")

        said = [line for line in lines(world) if "without the agent" in str(line["msg"])]
        assert len(said) == 1
        assert "past-gpu" in str(said[0]["msg"])
        assert await bypasses(world) == 1
        verbose = await page(world, "/readyz?verbose")
        assert f"bypass/{DRIVER}" in verbose
        assert "kubelet called the driver itself" in verbose
        assert "ready" in verbose

        world.add_pod("through", want(1))
        await world.wait_phase("through", "Running")
        assert await bypasses(world) == 1
        assert len(world.calls(DRIVER)) == 2
        assert [one.what for one in world.kubelet.said].count("failed") == 0


def lines(world: World) -> list[dict[str, object]]:
    assert world.agent is not None
    return [json.loads(line) for line in world.agent.text().splitlines() if line.startswith("{")]


def test_in_intake_a_drivers_own_socket_in_kubelets_registry() -> None:
    with harness.node(registration="intake", drivers={"rescan": "1s"}) as it:
        registered, endpoint = it.driver_sockets
        it.start_agent(wait=False)
        harness.until(lambda: it.log() and it.drivers_registry.is_dir(), "the agent")
        forgotten = it.registry / registered.name
        driver = harness.Process(
            *(build.GO_BINARY, "driver", DRIVER, forgotten, endpoint),
            errors=it.root / "forgotten.err",
        )
        it.ended.append(driver)

        def said() -> list[dict[str, object]]:
            return [line for line in it.log() if "registers with kubelet itself" in line["msg"]]

        harness.until(said, "a warning")
        time.sleep(1.5)  # longer than a rescan
        (line,) = said()
        assert line["severity"] == "WARNING"
        assert str(forgotten) in str(line["msg"])
        assert str(it.drivers_registry) in str(line["msg"])
        assert it.metric("dra_agent_bypassed_prepares_total") == 1
        verbose = it.http("/readyz?verbose")
        assert f"direct/{DRIVER}" in verbose
        assert not list(it.registry.glob(f"{names.SOCKET_PREFIX}*"))
        forgotten.unlink()
        harness.until(lambda: "direct/" not in it.http("/readyz?verbose"), "its end")
