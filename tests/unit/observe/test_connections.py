from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from agent.observe.connections import PER_ADDRESS, Connections

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def server() -> AsyncIterator[tuple[web.Server, int]]:
    async def hello(_: web.BaseRequest) -> web.Response:
        return web.Response(text="hello")

    made = web.Server(hello)
    listener = await asyncio.get_running_loop().create_server(Connections(made), "127.0.0.1", 0)
    yield made, listener.sockets[0].getsockname()[1]
    listener.close()
    await made.shutdown(1.0)


async def _hello(peer: Peer) -> bytes:
    reader, writer = peer
    writer.write(b"y\r\nHost: x\r\n\r\n")
    return await reader.readuntil(b"hello")


async def _ended(peer: Peer) -> bool:
    try:
        return await peer[0].read() == b""
    except ConnectionError:
        return True


async def test_the_oldest_connections_of_a_greedy_address_go_and_others_stay(
    server: tuple[web.Server, int],
) -> None:
    async def connect(address: str) -> Peer:
        """With half a request, as who wants to hold a place for ever."""
        peer = await asyncio.open_connection("127.0.0.1", server[1], local_addr=(address, 0))
        peer[1].write(b"GET / HTTP/1.1\r\nX: ")
        return peer

    async with asyncio.timeout(20):
        probe = await connect("127.0.0.2")
        greedy = [await connect("127.0.0.1") for _ in range(3 * PER_ADDRESS)]
        # The last one to come may be one too many until the next.
        assert all([await _ended(peer) for peer in greedy[: 2 * PER_ADDRESS - 1]])
        for peer in (probe, greedy[-1], greedy[-PER_ADDRESS]):
            assert (await _hello(peer)).startswith(b"HTTP/1.1 200")
        for peer in (probe, *greedy):
            peer[1].close()
