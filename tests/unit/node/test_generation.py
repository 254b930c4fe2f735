from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from agent import names
from agent.core.retire import View
from agent.errors import TransportError, UserError
from agent.node.generation import Behaviour, Generation, Sockets
from agent.node.info import make_status
from agent.rpc.call import Answer, Request, ServerStream
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.rpc import METHOD, RawPeer, frame, take_at_once
from tests.support.waiting import until


@pytest.fixture
def root() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield made


class Bench:
    def __init__(self, root: str) -> None:
        self.root = root
        self.notified: list[tuple[str, bool]] = []
        self.connects: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.made: list[Generation] = []

    async def _call(self, request: Request) -> Answer:
        await self.go.wait()
        return Answer(request.body)

    async def _large(self, _: Request) -> Answer:
        return Answer(bytes(4 << 20))

    async def _stream(self, stream: ServerStream) -> None:
        await stream.send(b"streamed")
        await stream.end()

    def generation(self, *, endpoint: str = "e.sock") -> Generation:
        made = Generation(
            Sockets(
                driver="gpu.example.com",
                name="00aaff",
                registration=os.path.join(self.root, "r.sock"),
                endpoint=os.path.join(self.root, endpoint),
                info=b"info",
            ),
            Behaviour(
                unary={"/a.B/C": self._call, METHOD: self._large}.get,
                stream=self._stream,
                get_info_delay=0.1,
                notify=None,
                on_notify=lambda name, registered: self.notified.append((name, registered)),
                on_connect=self.connects.append,
                silent=("/health/Watch",),
            ),
        )
        self.made.append(made)
        return made


@pytest.fixture
async def bench(root: str) -> AsyncIterator[Bench]:
    bench = Bench(root)
    yield bench
    for made in bench.made:
        await made.close()


async def dial(path: str) -> Channel:
    channel = Channel(path)
    await channel.connect()
    return channel


async def test_registration_answers_late_and_tells_of_notifications(bench: Bench) -> None:
    one = bench.generation()
    await one.publish()
    channel = await dial(one.sockets.registration)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    answer = await channel.unary(names.REGISTRATION_GET_INFO, b"", timeout=5)
    assert answer.body == b"info"
    assert loop.time() - begin >= 0.09
    for body in (make_status(registered=True), make_status(registered=False, error="x"), b"\xff"):
        answer = await channel.unary(names.REGISTRATION_NOTIFY, body, timeout=5)
        assert answer.body == b""
    assert bench.notified == [("00aaff", True), ("00aaff", False), ("00aaff", False)]
    other = await channel.unary("/x.Y/Z", b"", timeout=5)
    assert other.status is not None
    assert other.status.code == 12
    await channel.close()


async def test_the_endpoint_serves_calls_streams_and_silence(bench: Bench) -> None:
    one = bench.generation()
    await one.publish()
    assert one.view() == View(0, False)
    channel = await dial(one.sockets.endpoint)
    await until(lambda: bench.connects == ["00aaff"])
    assert (await channel.unary("/a.B/C", b"x", timeout=5)).body == b"x"
    assert (await channel.unary("/d.E/F", b"x", timeout=5)).body == b"streamed"
    with pytest.raises(TransportError, match="no answer"):
        await channel.unary("/health/Watch", b"", timeout=0.2)
    bench.go.clear()
    call = asyncio.get_running_loop().create_task(channel.unary("/a.B/C", b"y", timeout=5))
    await until(lambda: one.view() == View(1, True))
    bench.go.set()
    await call
    await until(lambda: one.view() == View(0, True))
    assert one.describe()["connected"]
    await channel.close()


async def test_a_silent_stream_is_not_in_flight(bench: Bench) -> None:
    one = bench.generation()
    await one.publish()
    channel = await dial(one.sockets.endpoint)
    call = asyncio.get_running_loop().create_task(channel.unary("/health/Watch", b"", timeout=9))
    await until(lambda: one.view().connected)
    await asyncio.wait_for(one.drain(asyncio.get_running_loop().time() + 9), 5)
    with pytest.raises(TransportError):
        await call


async def test_the_endpoint_listens_before_the_registration_socket_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.generation()
    start = Server.start
    seen: list[list[str]] = []

    async def spied(self: Server, path: str) -> None:
        seen.append(os.listdir(bench.root))
        await start(self, path)

    monkeypatch.setattr(Server, "start", spied)
    await one.publish()
    assert seen == [[], ["e.sock"]]


async def test_nothing_is_left_of_a_generation_that_could_not_be_made(bench: Bench) -> None:
    one = bench.generation(endpoint="e" * 120)
    with pytest.raises(UserError):
        await one.publish()
    assert os.listdir(bench.root) == []


async def test_retiring_aborts_the_endpoint_before_anything_is_unlinked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str, int]] = []

    def spy(name: str) -> None:
        original: Callable[[Server], None] = getattr(Server, name)

        def spied(self: Server) -> None:
            steps.append((name, os.path.basename(self.path), len(os.listdir(bench.root))))
            original(self)

        monkeypatch.setattr(Server, name, spied)

    one = bench.generation()
    await one.publish()
    channel = await dial(one.sockets.endpoint)
    await until(lambda: one.view().connected)
    for name in ("stop_listening", "abort_connections", "unlink"):
        spy(name)
    one.stop()
    await until(lambda: not channel.connected)
    # The listener is gone, the files are not: GetInfo is still answered.
    with pytest.raises(TransportError):
        await channel.connect()
    registration = await dial(one.sockets.registration)
    info = await registration.unary(names.REGISTRATION_GET_INFO, b"", timeout=5)
    assert info.body == b"info"
    await registration.close()
    await one.unlink()
    assert os.listdir(bench.root) == []
    assert steps[:4] == [
        ("stop_listening", "e.sock", 2),
        ("abort_connections", "e.sock", 2),
        ("unlink", "e.sock", 2),
        ("unlink", "r.sock", 1),
    ]


async def test_drain_waits_for_a_call_but_not_for_ever(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    one = bench.generation()
    await one.publish()
    channel = await dial(one.sockets.endpoint)
    bench.go.clear()
    call = loop.create_task(channel.unary("/a.B/C", b"y", timeout=5))
    await until(lambda: one.view().in_flight)
    drain = loop.create_task(one.drain(loop.time() + 9))
    await asyncio.sleep(0.06)
    assert not drain.done()
    bench.go.set()
    assert (await call).body == b"y"
    await drain
    again = bench.generation()
    await again.publish()
    channel = await dial(again.sockets.endpoint)
    bench.go.clear()
    call = loop.create_task(channel.unary("/a.B/C", b"y", timeout=5))
    await until(lambda: again.view().in_flight)
    await again.drain(loop.time() + 0.05)
    with pytest.raises(TransportError):
        await call


async def test_a_large_answer_is_not_cut_by_the_drain(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    one = bench.generation()
    await one.publish()
    peer = await RawPeer.connect(one.sockets.endpoint)
    reading = loop.create_task(peer.run())
    take_at_once(peer, 1 << 24)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    stream = peer.request(frame(b"x"))
    await until(lambda: one._endpoint.in_flight == 0 and one._endpoint.unanswered)
    assert one.view() == View(1, True)
    drain = loop.create_task(one.drain(loop.time() + 9))
    await asyncio.sleep(0.06)
    assert not drain.done()
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await drain
    assert (await peer.ended(stream))[b"grpc-status"] == b"0"
    assert peer.data(stream) == frame(bytes(4 << 20))
    await reading
    await peer.close()
