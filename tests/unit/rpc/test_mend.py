"""Each trap of grpclib 0.4.9 and h2 4.4: how it is here, and that it is still there without us.

A test named `..._unmended` that fails means that grpclib or h2 has changed: look whether the mend
is still needed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import stat
from pathlib import Path
from typing import Any, cast

import grpclib.client
import grpclib.const
import grpclib.server
import pytest
from grpclib import metadata as grpclib_metadata
from grpclib import stream as grpclib_stream
from grpclib.config import Configuration
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import Buffer
from grpclib.utils import DeadlineWrapper
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import PingReceived, StreamReset

from agent.core.model import Culprit, Failure, Status, Surface, Transport
from agent.errors import TransportError
from agent.rpc import call, http2, mend
from agent.rpc.call import Answer, Request
from agent.rpc.channel import Channel
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support.rpc import (
    LIMIT,
    METHOD,
    OK,
    REQUEST,
    RESPONSE,
    Driver,
    Pair,
    RawHeaders,
    RawPeer,
    frame,
)
from tests.support.waiting import until

BIG_TEXT = "é%" * 25_000  # 100 KiB and more once it is escaped


class Raw(CodecBase):
    """Bytes as they are, for grpclib's own client and server."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return cast(bytes, message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


async def grpclib_call(path: str, body: bytes = b"x") -> Any:
    """One call by grpclib's own client."""
    channel = grpclib.client.Channel(path=path, codec=Raw())
    try:
        return await grpclib.client.UnaryUnaryMethod(channel, METHOD, bytes, bytes)(body)
    finally:
        channel.close()
        await asyncio.sleep(0.01)


# Large headers


async def test_an_error_text_of_100_kib_passes(pair: Pair) -> None:
    async def fail(_: Request) -> Answer:
        return Answer(status=Status(9, BIG_TEXT, b"\0details"))

    pair.unary = fail
    answer = await pair.call()
    assert answer.status == Status(9, BIG_TEXT, b"\0details")
    assert pair.changes == [True]


async def test_an_error_text_above_the_limit_is_cut(pair: Pair) -> None:
    async def fail(_: Request) -> Answer:
        return Answer(status=Status(9, "x" * 3 * http2.HEADER_LIMIT))

    pair.unary = fail
    answer = await pair.call()
    assert answer.status is not None
    assert answer.status.message.endswith("x [cut]")
    assert len(answer.status.message) > http2.HEADER_LIMIT * 0.9


async def test_large_header_unmended(pair: Pair) -> None:
    async def fail(_: Request) -> Answer:
        return Answer(status=Status(9, BIG_TEXT))

    assert H2Connection.DEFAULT_MAX_HEADER_LIST_SIZE == 65_536
    pair.unary = fail
    # Ours keeps to what the peer announces, so the text is cut; grpclib sends it whole.
    with pytest.raises(grpclib.exceptions.GRPCError) as caught:
        await grpclib_call(pair.path)
    assert str(caught.value.message).endswith("[cut]")


# GOAWAY


async def test_calls_that_goaway_covers_are_answered(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        # Not h2's own close_connection: that would not let the answer out.
        peer.writer.write(goaway(last_stream_id=stream_id))
        peer.answer(stream_id, frame(b"in time"))

    driver.script = script
    assert (await driver.call()).body == b"in time"
    assert not driver.channel.connected
    with pytest.raises(TransportError) as caught:
        await driver.call()
    assert not caught.value.sent
    await until(lambda: driver.server.peers[0].eof, "the end of the drained connection")
    driver.script = None
    await driver.channel.connect()
    assert (await driver.call()).body == b"fine"


async def test_calls_that_goaway_does_not_cover_were_not_sent(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.writer.write(goaway(last_stream_id=0))

    driver.script = script
    await driver.fails(Transport.RESET, sent=False)
    assert not driver.channel.connected


async def test_goaway_unmended(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.writer.write(goaway(last_stream_id=stream_id))
        peer.answer(stream_id, frame(b"in time"))

    driver.script = script
    with pytest.raises(StreamTerminatedError):
        await grpclib_call(driver.path)


def goaway(last_stream_id: int) -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + bytes(4)
    return len(payload).to_bytes(3, "big") + b"\x07\x00" + bytes(4) + payload


# Message size and shape


async def test_a_length_prefix_of_3_gib_is_refused_and_the_connection_lives(
    pair: Pair, raw: RawPeer
) -> None:
    stream_id = raw.request(frame(b"x", size=3 << 30), end=False)
    assert (await raw.ended(stream_id))[b"grpc-status"] == b"8"
    again = raw.request(frame(b"x"))
    assert (await raw.ended(again))[b"grpc-status"] == b"0"
    assert raw.data(again) == frame(b"x")
    assert len(pair.requests) == 1


async def test_an_answer_of_3_gib_is_resource_exhausted(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.h2.send_headers(stream_id, RESPONSE)
        peer.h2.send_data(stream_id, frame(b"x", size=3 << 30))

    driver.script = script
    answer = await driver.call()
    assert answer.status is not None
    assert answer.status.code == call.RESOURCE_EXHAUSTED
    driver.script = None
    assert (await driver.call()).body == b"fine"
    assert driver.server.peers[0].of(StreamReset)[0].error_code == ErrorCodes.CANCEL


async def test_16_mib_pass_both_ways(pair: Pair) -> None:
    body = bytes(call.MAX_MESSAGE)
    assert (await pair.call(body)).body == body
    answer = await pair.call(body + b"x")
    assert answer.status is not None
    assert answer.status.code == call.RESOURCE_EXHAUSTED
    assert (await pair.call(b"still there")).body == b"still there"
    assert pair.changes == [True]


class Recording:
    """Stands in for a stream in grpclib's reader of messages."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    async def recv_data(self, size: int) -> bytes:
        self.asked.append(size)
        return self.answers.pop(0)


async def test_message_limits_unmended() -> None:
    stream = Recording(frame(b"", size=3 << 30), b"")
    with pytest.raises(AssertionError):
        await grpclib_stream.recv_message(cast(Any, stream), Raw(), bytes)
    assert stream.asked == [5, 3 << 30]
    with pytest.raises(NotImplementedError):
        await grpclib_stream.recv_message(cast(Any, Recording(frame(b"", flag=1))), Raw(), bytes)
    buffer = Buffer(lambda _: None)
    buffer.add(b"abc", 3)
    buffer.eof()
    with pytest.raises(AssertionError):
        await buffer.read(5)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(frame(b"x", size=9), b"13", id="short body"),
        pytest.param(b"\0\0", b"13", id="short prefix"),
        pytest.param(frame(b"x", flag=1), b"12", id="compressed"),
    ],
)
async def test_a_bad_request_is_a_status(
    pair: Pair, raw: RawPeer, body: bytes, status: bytes
) -> None:
    assert (await raw.ended(raw.request(body)))[b"grpc-status"] == status
    assert (await raw.ended(raw.request()))[b"grpc-status"] == b"13"  # no message at all
    assert (await raw.ended(raw.request(frame(b"x"))))[b"grpc-status"] == b"0"
    assert not raw.goaway
    assert [request.body for request in pair.requests] == [b"x"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(frame(b"x", size=9), id="short body"),
        pytest.param(b"\0\0", id="short prefix"),
        pytest.param(frame(b"x") + frame(b"y"), id="two messages"),
        pytest.param(b"", id="no message"),
    ],
)
async def test_a_bad_answer_is_a_protocol_error(driver: Driver, body: bytes) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, body)

    driver.script = script
    await driver.fails(Transport.PROTOCOL)
    driver.script = None
    assert (await driver.call()).body == b"fine"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        pytest.param(frame(b"x", flag=1), call.UNIMPLEMENTED, id="compressed"),
        pytest.param(frame(b"", size=call.MAX_MESSAGE + 1), call.RESOURCE_EXHAUSTED, id="large"),
    ],
)
async def test_a_message_we_cannot_take_is_a_status_that_accuses_the_driver(
    driver: Driver, message: bytes, code: int
) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, message)

    driver.script = script
    status = (await driver.call()).status
    assert status is not None
    assert status.code == code
    failure = Failure("d.example", "prepare", Surface.CALL_ERROR, status.message, status.code)
    assert load_rules(Rules()).classify(failure).culprit is Culprit.DRIVER


# Headers


async def test_headers_that_are_not_ascii_are_data(pair: Pair, raw: RawPeer) -> None:
    odd = [*REQUEST, (b"odd", b"caf\xc3\xa9 \xff")]
    assert (await raw.ended(raw.request(frame(b"x"), headers=odd)))[b"grpc-status"] == b"0"
    assert pair.requests[0].metadata == (("odd", b"caf\xc3\xa9 \xff".decode("latin-1")),)


async def test_trailers_that_are_not_ascii_come_back_as_they_were(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        trailers = [(b"grpc-status", b"5"), (b"grpc-message", b"caf\xc3\xa9"), (b"odd", b"\xff")]
        peer.answer(stream_id, b"", trailers)

    driver.script = script
    answer = await driver.call()
    assert answer.status == Status(5, "café", trailers=(("odd", "\xff"),))


async def test_header_that_is_not_ascii_unmended(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, frame(b"x"), [*OK, (b"odd", b"\xff")])

    driver.script = script
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    with pytest.raises(StreamTerminatedError):
        await grpclib_call(driver.path)
    assert isinstance(errors[0]["exception"], UnicodeDecodeError)


async def test_empty_trailers_pass(pair: Pair) -> None:
    async def handler(_: Request) -> Answer:
        return Answer(body=b"", trailers=(("empty", ""), ("bin-bin", b"")))

    pair.unary = handler
    answer = await pair.call(metadata=(("also", ""),))
    assert answer.trailers == (("empty", ""), ("bin-bin", b""))
    assert pair.requests[0].metadata == (("also", ""),)


def test_empty_trailers_unmended() -> None:
    with pytest.raises(ValueError, match="Invalid metadata value"):
        grpclib_metadata.encode_metadata([("empty", "")])


async def test_details_pass_both_ways(pair: Pair, raw: RawPeer) -> None:
    async def fail(_: Request) -> Answer:
        return Answer(status=Status(9, "no", b"\x08\x09", (("a", "b"),)))

    pair.unary = fail
    assert (await pair.call()).status == Status(9, "no", b"\x08\x09", (("a", "b"),))
    headers = await raw.ended(raw.request(frame(b"x")))
    assert headers[b"grpc-status-details-bin"] == b"CAk"


async def test_an_unknown_method_has_a_content_type(pair: Pair, raw: RawPeer) -> None:
    async def unknown(stream: call.ServerStream) -> None:
        await stream.end(Status(call.UNIMPLEMENTED, "unknown"))

    pair.stream = unknown
    path = [(key, b"/no/such" if key == b":path" else value) for key, value in REQUEST]
    headers = await raw.ended(raw.request(frame(b"x"), headers=path))
    assert headers[b"content-type"] == b"application/grpc"
    assert headers[b"grpc-status"] == b"12"


async def test_an_unknown_method_of_a_grpclib_driver_is_unimplemented(sockets: Path) -> None:
    server = grpclib.server.Server([], codec=Raw())
    path = str(sockets / "g.sock")
    await server.start(path=path)
    channel = Channel(path)
    await channel.connect()
    answer = await channel.unary(METHOD, b"", timeout=LIMIT)
    assert answer.status is not None
    assert answer.status.code == call.UNIMPLEMENTED

    # Unmended: this is what grpc-go reads as UNKNOWN.
    raw = await RawPeer.connect(path)
    task = asyncio.get_running_loop().create_task(raw.run())
    assert b"content-type" not in await raw.ended(raw.request(frame(b"x")))
    await raw.close()
    await task
    await channel.close()
    server.close()


async def test_a_percent_encoded_authority_is_taken(pair: Pair, raw: RawPeer) -> None:
    authority = b"%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Ffoo-reg.sock"
    headers = [(key, authority if key == b":authority" else value) for key, value in REQUEST]
    answer = await raw.ended(raw.request(frame(b"x"), headers=headers))
    assert answer[b"grpc-status"] == b"0"


async def test_the_authority_is_localhost_as_kubelet_sends_it(driver: Driver) -> None:
    await driver.call()
    assert dict(driver.headers[0])[b":authority"] == b"localhost"


# Deadlines


async def test_deadlines_have_milliseconds(driver: Driver) -> None:
    await driver.call(timeout=44.9876)
    assert dict(driver.headers[0])[b"grpc-timeout"] == b"44987m"


def test_deadlines_unmended() -> None:
    assert grpclib_metadata.encode_timeout(44.9876) == "44S"


async def test_a_deadline_leaves_the_task_uncancelled(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        return

    driver.script = script
    with pytest.raises(TransportError) as caught:
        await driver.call(timeout=0.05)
    assert caught.value.kind is Transport.DEADLINE
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    peer = driver.server.peers[0]
    await until(lambda: bool(peer.of(StreamReset)), "RST_STREAM")
    assert peer.of(StreamReset)[0].error_code == ErrorCodes.CANCEL


async def test_a_deadline_unmended() -> None:
    async def run() -> int:
        wrapper = DeadlineWrapper()
        deadline = grpclib_metadata.Deadline.from_timeout(0.01)
        with pytest.raises(TimeoutError), wrapper.start(deadline), wrapper:
            await asyncio.sleep(LIMIT)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await asyncio.get_running_loop().create_task(run()) == 1


# Connections


async def test_unknown_frames_are_ignored(pair: Pair, raw: RawPeer) -> None:
    raw.writer.write(b"\x00\x00\x01\xfa\x00\x00\x00\x00\x00x")
    assert (await raw.ended(raw.request(frame(b"x"))))[b"grpc-status"] == b"0"


async def test_garbage_ends_its_connection_and_nothing_else(pair: Pair) -> None:
    reader, writer = await asyncio.open_unix_connection(pair.path)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
    await asyncio.wait_for(reader.read(), LIMIT)
    writer.close()
    assert (await pair.call(b"fine")).body == b"fine"


async def test_an_unexpected_error_ends_its_connection_and_nothing_else(
    pair: Pair, raw: RawPeer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    await raw.ended(raw.request(frame(b"x")))
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        patch.setattr(mend.Processor, "process", broken)
        raw.request(frame(b"x"))
        await until(lambda: raw.eof, "the end of the connection")
    await until(lambda: not pair.channel.connected or pair.server.connections == 1, "the rest")
    await pair.channel.connect()
    assert (await pair.call(b"fine")).body == b"fine"


async def test_no_pings_are_sent(pair: Pair, driver: Driver) -> None:
    await driver.call()
    await pair.call()
    peer = next(iter(pair.server.peers))
    assert peer.protocol is not None
    assert peer.protocol.connection._ping_handle is None
    assert not driver.server.peers[0].of(PingReceived)
    # Unmended: a server pings after two hours.
    assert Configuration().__for_server__()._keepalive_time == 7200


# Listening


async def test_calls_in_flight_outlive_the_listener(pair: Pair) -> None:
    release = asyncio.Event()

    async def wait(_: Request) -> Answer:
        await release.wait()
        return Answer(body=b"answered")

    pair.unary = wait
    pending = asyncio.get_running_loop().create_task(pair.call())
    await until(lambda: pair.server.in_flight == 1, "the call")
    pair.server.stop_listening()
    release.set()
    assert (await pending).body == b"answered"
    with pytest.raises(TransportError) as caught:
        await Channel(pair.path).connect()
    assert caught.value.kind is Transport.REFUSED


async def test_close_cancels_calls_unmended(sockets: Path) -> None:
    started = asyncio.Event()

    async def wait(stream: Any) -> None:
        await stream.recv_message()
        started.set()
        await asyncio.sleep(LIMIT)

    server = grpclib.server.Server([], codec=Raw())
    handler = grpclib.const.Handler(wait, grpclib.const.Cardinality.UNARY_UNARY, bytes, bytes)
    server._mapping = {METHOD: handler}
    path = str(sockets / "g.sock")
    await server.start(path=path)
    channel = Channel(path)
    await channel.connect()
    pending = asyncio.get_running_loop().create_task(channel.unary(METHOD, b"", timeout=0.5))
    await asyncio.wait_for(started.wait(), LIMIT)
    server.close()
    with pytest.raises(TransportError):
        await pending
    await channel.close()


async def test_close_ends_with_connections_open(pair: Pair) -> None:
    async def wait(_: Request) -> Answer:
        await asyncio.sleep(LIMIT)
        return Answer()

    pair.unary = wait
    pending = asyncio.get_running_loop().create_task(pair.call())
    await until(lambda: pair.server.in_flight == 1, "the call")
    # Unmended: wait_closed() waits for the connections from Python 3.12 on.
    await asyncio.wait_for(pair.server.close(), LIMIT)
    with pytest.raises(TransportError) as caught:
        await pending
    assert (caught.value.kind, caught.value.sent) == (Transport.RESET, True)
    assert pair.server.in_flight == 0


async def test_the_socket_file_is_ours_alone(pair: Pair) -> None:
    pair.server.stop_listening()
    pair.server.abort_connections()
    await until(lambda: pair.server.connections == 0, "the end of connections")
    assert stat.S_ISSOCK(os.stat(pair.path).st_mode)
    pair.server.unlink()
    with pytest.raises(FileNotFoundError):
        os.stat(pair.path)
    pair.server.unlink()


def test_cleanup_is_not_asked_of_grpclib_unmended() -> None:
    # grpclib cannot pass cleanup_socket=False: Python 3.13 unlinks the file, older ones do not.
    assert "cleanup_socket" not in inspect.signature(grpclib.server.Server.start).parameters
