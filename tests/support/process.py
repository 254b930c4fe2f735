"""A short directory for sockets, and nodes of the demo as context managers."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from agent.demo.driver import ScriptedDriver
from agent.demo.main import temporary_root
from agent.demo.objects import Want
from agent.demo.periods import SHORT, Periods
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.world import World

FAST = replace(
    SHORT,
    resync=(0.3, 0.4),
    unprepare_retry=(0.1, 0.15),
    deadline=2.0,
    reconcile=0.02,
    register_backoff=(0.05, 0.2),
    reconnect_backoff=(0.05, 0.2),
    wipe=0.3,
    relist=0.1,
    status=0.1,
)
"""For tests that wait for the stand-in kubelet."""


BESIDE_AGENT = replace(
    FAST, resync=(5.0, 6.0), deadline=15.0, reconcile=0.1, wipe=10.0, relist=1.0, status=0.5
)
"""For tests with the agent, whose own periods are the real ones: what is retried within kubelet's
call and what only after kubelet's wait are seconds apart."""

REAL_WAIT = replace(BESIDE_AGENT, resync=(300.0, 400.0), deadline=60.0)
"""Kubelet makes no second call by itself, and no call of it ends, within a test."""

DRIVER = "gpu.example.com"
GPU = Want("gpu", DRIVER, ("gpu-0",))


@contextmanager
def short_root() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    root = temporary_root()
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def node(periods: Periods = FAST) -> AsyncIterator[World]:
    """A node without agent and drivers; children that are still there are ended."""
    crashes: list[str] = []
    with short_root() as root:
        world = World(root, periods=periods, on_crash=lambda name, _: crashes.append(name))
        await world.start()
        try:
            yield world
        except BaseException:
            for child in (world.agent, *world.drivers.values()):
                if child is not None:
                    print(f"--- {child.output.name}\n{child.text()[-6000:]}")
            raise
        finally:
            await world.close()
    assert not crashes


@asynccontextmanager
async def agent_node(
    *rules: Rule, periods: Periods = BESIDE_AGENT, **config: object
) -> AsyncIterator[World]:
    """A node with one driver process behind a running agent with these config keys."""
    async with node(periods) as world:
        world.script(DRIVER, *rules)
        await world.start_driver(DRIVER)
        await world.start_agent(config)
        yield world


@asynccontextmanager
async def driver(world: World, *rules: Rule, name: str = DRIVER) -> AsyncIterator[ScriptedDriver]:
    """A scripted driver in this process, registered with the node's kubelet."""
    world.script(name, *rules)
    served = ScriptedDriver(world.options(name))
    await served.start()
    await until(
        lambda: any(plugin.connected for plugin in world.kubelet.plugins.of(name)), "registration"
    )
    try:
        yield served
    finally:
        await served.close()
