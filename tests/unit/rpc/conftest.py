"""Everything here runs under both loops: uvloop as in the program, asyncio as without it."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import uvloop

from tests.support.rpc import LIMIT, Driver, Pair, RawPeer


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory with a short name: pytest's own are too long for sockets."""
    with TemporaryDirectory(prefix="rpc-") as directory:
        yield Path(directory)


@pytest.fixture
async def pair(sockets: Path) -> AsyncIterator[Pair]:
    """Our server and our channel, connected."""
    made = Pair(str(sockets / "s.sock"))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def raw(pair: Pair) -> AsyncIterator[RawPeer]:
    """A client of the pair's server that may misbehave."""
    peer = await RawPeer.connect(pair.path)
    task = asyncio.get_running_loop().create_task(peer.run())
    yield peer
    await peer.close()
    await asyncio.wait_for(task, LIMIT)


@pytest.fixture
async def driver(sockets: Path) -> AsyncIterator[Driver]:
    made = Driver(str(sockets / "d.sock"))
    await made.server.start(made.path)
    await made.channel.connect()
    yield made
    await made.channel.close()
    await made.server.close()
