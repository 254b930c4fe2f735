"""Against grpc-core: its client calls our server, our channel calls its server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.core.model import Status, Transport
from agent.errors import TransportError
from agent.rpc import call
from agent.rpc.call import Answer, Request, ServerStream
from agent.rpc.channel import Channel
from tests.support.rpc import LIMIT, METHOD, Pair

grpc = pytest.importorskip("grpc", reason="grpcio comes with grpcio-tools of the dev group")

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
]
BIG_TEXT = "é" * 50_000
BIG = bytes(range(256)) * (4 << 12)  # 4 MiB
STREAM = "/test.Service/Stream"


class Client:
    """grpc-core's client. Its calls block, so they run in a thread."""

    def __init__(self, path: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", options=OPTIONS)

    async def unary(
        self, body: bytes, *, method: str = METHOD, metadata: Any = None, timeout: float = LIMIT
    ) -> Any:
        """The call object, once it has ended."""

        def run() -> Any:
            multi = self._channel.unary_unary(method)
            future = multi.future(body, metadata=metadata, timeout=timeout)
            future.exception()
            return future

        return await asyncio.to_thread(run)

    async def stream(self, messages: list[bytes]) -> list[bytes]:
        def run() -> list[bytes]:
            return list(self._channel.stream_stream(STREAM)(iter(messages), timeout=LIMIT))

        return await asyncio.to_thread(run)

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[Client]:
    made = Client(pair.path)
    yield made
    made.close()


class Handlers:
    """Methods of grpc-core's server, by path."""

    def __init__(self) -> None:
        self.unary: Callable[[bytes, Any], bytes] = lambda body, _: body

    def service(self, details: Any) -> Any:
        if details.method == METHOD:
            return grpc.unary_unary_rpc_method_handler(self.unary)
        if details.method == STREAM:
            return grpc.stream_stream_rpc_method_handler(lambda messages, _: messages)
        return None


@pytest.fixture
def served(sockets: Path) -> Iterator[tuple[Handlers, str]]:
    handlers = Handlers()
    path = str(sockets / "core.sock")
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, options=OPTIONS)
        server.add_generic_rpc_handlers((handlers,))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        yield handlers, path
        server.stop(None).wait()


@pytest.fixture
async def channel(served: tuple[Handlers, str]) -> AsyncIterator[Channel]:
    made = Channel(served[1])
    await made.connect()
    yield made
    await made.close()


# grpc-core calls us


async def test_its_call_arrives_whole(pair: Pair, client: Client) -> None:
    async def handler(request: Request) -> Answer:
        return Answer(request.body, None, (("i", "1"), ("i-bin", b"\0\xff")), (("t-bin", b"x"),))

    pair.unary = handler
    done = await client.unary(BIG, metadata=(("k", "v"), ("k-bin", b"\0\xff\1")))
    assert done.result() == BIG
    assert dict(done.initial_metadata()) == {"i": "1", "i-bin": b"\0\xff"}
    assert dict(done.trailing_metadata()) == {"t-bin": b"x"}
    assert {("k", "v"), ("k-bin", b"\0\xff\1")} <= set(pair.requests[0].metadata)
    assert pair.requests[0].deadline is not None


async def test_it_reads_our_status(pair: Pair, client: Client) -> None:
    async def handler(_: Request) -> Answer:
        return Answer(status=Status(9, BIG_TEXT, b"\0details", (("t", "u"),)))

    pair.unary = handler
    done = await client.unary(b"")
    assert done.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert done.details() == BIG_TEXT
    assert ("grpc-status-details-bin", b"\0details") in done.trailing_metadata()
    assert ("t", "u") in done.trailing_metadata()


async def test_it_reads_unimplemented(pair: Pair, client: Client) -> None:
    async def unknown(stream: ServerStream) -> None:
        await stream.end(Status(call.UNIMPLEMENTED, "no such method"))

    pair.stream = unknown
    done = await client.unary(b"", method="/no/such")
    assert (done.code(), done.details()) == (grpc.StatusCode.UNIMPLEMENTED, "no such method")


async def test_its_deadline_cancels_our_handler(pair: Pair, client: Client) -> None:
    cancelled = asyncio.Event()

    async def handler(_: Request) -> Answer:
        try:
            await asyncio.sleep(LIMIT)
        finally:
            cancelled.set()
        return Answer()

    pair.unary = handler
    done = await client.unary(b"", timeout=0.2)
    assert done.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(cancelled.wait(), LIMIT)


async def test_its_message_above_our_limit_is_resource_exhausted(
    pair: Pair, client: Client
) -> None:
    done = await client.unary(bytes(call.MAX_MESSAGE + 1))
    assert done.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await client.unary(b"fine")).result() == b"fine"


async def test_its_streams_work(pair: Pair, client: Client) -> None:
    messages = [b"%d" % n for n in range(100)] + [BIG]
    assert await client.stream(messages) == messages


# We call grpc-core


async def test_our_call_arrives_whole(served: tuple[Handlers, str], channel: Channel) -> None:
    seen: dict[str, Any] = {}

    def handler(body: bytes, context: Any) -> bytes:
        seen["metadata"] = dict(context.invocation_metadata())
        seen["left"] = context.time_remaining()
        context.send_initial_metadata((("i", "1"), ("i-bin", b"\0")))
        context.set_trailing_metadata((("t-bin", b"\xff"),))
        return body

    served[0].unary = handler
    answer = await channel.unary(METHOD, BIG, metadata=(("k-bin", b"\0\xff"),), timeout=44.5)
    assert answer == Answer(BIG, None, (("i", "1"), ("i-bin", b"\0")), (("t-bin", b"\xff"),))
    assert seen["metadata"]["k-bin"] == b"\0\xff"
    assert 44 < seen["left"] <= 44.5


async def test_we_read_its_status(served: tuple[Handlers, str], channel: Channel) -> None:
    def handler(_: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\0d"), ("t", "u")))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, BIG_TEXT)
        return b""

    served[0].unary = handler
    answer = await channel.unary(METHOD, b"", timeout=LIMIT)
    assert answer.status == Status(9, BIG_TEXT, b"\0d", (("t", "u"),))


async def test_we_read_its_unimplemented(channel: Channel) -> None:
    answer = await channel.unary("/no/such", b"", timeout=LIMIT)
    assert answer.status is not None
    assert answer.status.code == call.UNIMPLEMENTED


async def test_our_deadline_reaches_its_handler(
    served: tuple[Handlers, str], channel: Channel
) -> None:
    ended = threading.Event()

    def handler(_: bytes, context: Any) -> bytes:
        context.add_callback(ended.set)
        ended.wait(LIMIT)
        return b""

    served[0].unary = handler
    with pytest.raises(TransportError) as caught:
        await channel.unary(METHOD, b"", timeout=0.2)
    assert caught.value.kind is Transport.DEADLINE
    assert await asyncio.to_thread(ended.wait, LIMIT)


async def test_our_relay_carries_its_streams(pair: Pair, client: Client, channel: Channel) -> None:
    async def relay(stream: ServerStream) -> None:
        await channel.relay(stream.method, stream)

    pair.stream = relay
    messages = [b"%d" % n for n in range(100)] + [BIG]
    assert await client.stream(messages) == messages


async def test_its_graceful_stop_is_a_loss_that_answers_what_is_in_flight(
    sockets: Path,
) -> None:
    started, release = threading.Event(), threading.Event()
    handlers = Handlers()

    def handler(body: bytes, _: Any) -> bytes:
        started.set()
        release.wait(LIMIT)
        return body

    handlers.unary = handler
    path = str(sockets / "stop.sock")
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((handlers,))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        lost = asyncio.Event()
        channel = Channel(path, on_change=lambda up: None if up else lost.set())
        await channel.connect()
        pending = asyncio.get_running_loop().create_task(
            channel.unary(METHOD, b"in flight", timeout=LIMIT)
        )
        assert await asyncio.to_thread(started.wait, LIMIT)
        stopped = server.stop(LIMIT)
        await asyncio.wait_for(lost.wait(), LIMIT)
        assert not channel.connected
        release.set()
        assert (await pending).body == b"in flight"
        await asyncio.to_thread(stopped.wait, LIMIT)
        await channel.close()
