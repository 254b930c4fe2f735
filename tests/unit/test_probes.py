"""Probes over a registry that is real and drivers that are not there."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent import names
from agent.node.registry import Registry
from agent.probes import CONNECT, AgentProbes
from agent.rpc.call import Answer, Request, ServerStream
from agent.rpc.server import Server
from agent.settings.model import NodeIdentity
from tests.support.proxying import Bench


class Link:
    """Enough of a link for the probes."""

    def __init__(self, path: str, away_since: float | None = None) -> None:
        self.path = path
        self.away_since = away_since
        self.registered = away_since is None

    @property
    def endpoints(self) -> list[str]:
        return [self.path]


async def pong(_: Request) -> Answer:
    return Answer(b"")


async def nothing(stream: ServerStream) -> None:
    await stream.end()


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as folder:
        server = Server(unary={names.PING_METHOD: pong}.get, stream=nothing)
        await server.start(str(Path(folder) / "e.sock"))
        yield server.path
        await server.close()


def probes(**links: Link) -> AgentProbes:
    registry = SimpleNamespace(links=links, watching=True, describe=dict, direct={})
    return AgentProbes(NodeIdentity(node_name="n"), cast(Registry, registry), Bench().ctx)


async def test_live_dials_through_every_endpoint(endpoint: str) -> None:
    checks = await probes(good=Link(endpoint), bad=Link(endpoint + "-gone")).live()
    assert {c.name: c.ok for c in checks} == {
        "event-loop": True,
        "endpoint/good": True,
        "endpoint/bad": False,
    }
    assert next(c.text for c in checks if not c.ok)


async def test_a_driver_that_is_away_is_shown_but_never_makes_the_agent_unready() -> None:
    found = probes(d=Link("", asyncio.get_running_loop().time()))
    bad = [check for check in found.ready() if not check.ok]
    assert {check.name for check in bad} == {"driver/d", "registered/d"}
    assert not any(check.affects for check in bad)


async def test_the_api_server_going_away_does_not_make_it_unready() -> None:
    found = probes()
    found.pods = cast("object", SimpleNamespace(failing="", synced=False))  # type: ignore[assignment]
    assert [c.affects for c in found.ready() if not c.ok] == [True]
    found.pods = cast("object", SimpleNamespace(failing="refused", synced=True))  # type: ignore[assignment]
    assert all(c.ok for c in found.ready())


async def test_a_bypass_is_shown_and_affects_nothing() -> None:
    found = probes(d=Link(""), e=Link(""))
    assert all(check.ok for check in found.ready())
    recent = {"d"}
    watch = SimpleNamespace(found={"d": 2}, recent=recent.__contains__)
    found.bypass = cast("object", watch)  # type: ignore[assignment]
    found._registry.direct["/r/e-reg.sock"] = "e"  # type: ignore[index]
    bad = {check.name: check.text for check in found.ready() if not check.ok}
    assert bad.keys() == {"bypass/d", "direct/e"}
    assert "2 times" in bad["bypass/d"]
    assert "/r/e-reg.sock" in bad["direct/e"]
    recent.clear()
    shown = {check.name: check.ok for check in found.ready()}
    assert shown["bypass/d"]
    assert not any(check.affects for check in found.ready() if not check.ok)


def test_a_crash_while_connecting_is_no_start_that_goes_well() -> None:
    made = probes()
    made.crash(CONNECT, AssertionError())
    checks = {check.name: check for check in made.ready()}
    assert not checks["reporting"].ok
    assert checks["reporting"].text == "off: connecting to the API server crashed"
    assert not checks[f"task/{CONNECT}"].ok
