"""What the agent does not have to change reaches the other side as it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent import names
from agent.core.model import ClaimRef, Metadata, Status
from agent.demo import messages
from agent.demo.kubelet import PLUGINS, REGISTRY
from agent.demo.world import World
from agent.rpc.call import Answer, Handler, Request, ServerStream
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.process import BESIDE_AGENT, DRIVER, node

pytestmark = pytest.mark.timeout(90)

CLAIM = ClaimRef("ns", "uid-1", "one")
UNKNOWN_FIELD = b"\xfa\x01\x05later"  # field 31, a string
REQUEST = messages.claims_request(names.PREPARE, [CLAIM]) + UNKNOWN_FIELD
ANSWER = messages.answers(names.PREPARE, {CLAIM.uid: messages.ClaimAnswer()}) + UNKNOWN_FIELD
OTHER_METHOD = "/example.v7.Later/Anything"


@dataclass
class RawDriver:
    """Registers as a driver and answers with bytes that are set."""

    world: World
    answer: Answer = field(default_factory=lambda: Answer(body=ANSWER))
    seen: list[Request] = field(default_factory=list)
    streamed: list[bytes] = field(default_factory=list)

    async def start(self) -> None:
        data = self.world.root / PLUGINS / DRIVER
        data.mkdir(parents=True)
        self.endpoint = str(data / "dra.sock")
        self.servers = [Server(unary=self._method, stream=self._stream) for _ in range(2)]
        await self.servers[0].start(self.endpoint)
        await self.servers[1].start(str(self.world.root / REGISTRY / f"{DRIVER}-reg.sock"))
        self.world.script(DRIVER)

    async def close(self) -> None:
        for server in self.servers:
            await server.close()

    def _method(self, method: str) -> Handler | None:
        if method == names.REGISTRATION_GET_INFO:
            return self._info
        if method == names.REGISTRATION_NOTIFY:
            return self._notified
        return self._call if "DRAPlugin" in method else None

    async def _info(self, request: Request) -> Answer:
        versions = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
        info = messages.Info(names.PLUGIN_TYPE, DRIVER, self.endpoint, versions)
        return Answer(body=messages.info(info))

    async def _notified(self, request: Request) -> Answer:
        return Answer(body=b"")

    async def _call(self, request: Request) -> Answer:
        self.seen.append(request)
        return self.answer

    async def _stream(self, stream: ServerStream) -> None:
        while (message := await stream.recv()) is not None:
            self.streamed.append(message)
            await stream.send(b"one:" + message)
            await stream.send(b"two:" + message)
        await stream.end(Status(9, "ends so"), (("x-after", "last"),))


@dataclass
class Through:
    driver: RawDriver
    channel: Channel  # to the agent's endpoint, as kubelet has it


class Caller:
    """The calling side of a stream: sends the messages, keeps what comes."""

    method = OTHER_METHOD
    metadata: Metadata = ()
    deadline: float | None = None

    def __init__(self, messages: list[bytes]) -> None:
        self.received: list[bytes] = []
        self.status: Status | None = None
        self.trailers: Metadata = ()
        self._messages = iter(messages)

    async def recv(self) -> bytes | None:
        return next(self._messages, None)

    async def send_initial(self, metadata: Metadata = ()) -> None:
        pass

    async def send(self, body: bytes) -> None:
        self.received.append(body)

    async def end(self, status: Status | None = None, trailers: Metadata = ()) -> None:
        self.status, self.trailers = status, trailers


@pytest.fixture
async def through() -> AsyncIterator[Through]:
    async with node(BESIDE_AGENT) as world:
        driver = RawDriver(world)
        await driver.start()
        await world.start_agent({})
        plugin = world.kubelet.plugins.pick(DRIVER)
        assert plugin is not None
        assert Path(plugin.endpoint).parent.name == names.ENDPOINT_DIR
        channel = Channel(plugin.endpoint)
        await channel.connect()
        yield Through(driver, channel)
        await channel.close()
        await driver.close()


async def test_healthy_calls_of_both_versions_and_their_metadata(through: Through) -> None:
    sent = (("x-request", "value"), ("x-bytes-bin", b"\x00\xff"))
    through.driver.answer = Answer(
        body=ANSWER, initial=(("x-first", "1"),), trailers=(("x-t", "2"),)
    )
    for service in names.PLUGIN_SERVICES.values():
        method = f"/{service}/{names.PREPARE}"
        answer = await through.channel.unary(method, REQUEST, metadata=sent, timeout=10)
        seen = through.driver.seen[-1]
        assert (seen.method, seen.body) == (method, REQUEST)
        assert set(sent) <= set(seen.metadata)
        assert answer.body == ANSWER
        assert ("x-first", "1") in answer.initial
        assert ("x-t", "2") in answer.trailers
    assert len(through.driver.seen) == 2


async def test_an_unprepare_is_always_the_drivers_own(through: Through) -> None:
    body = messages.answers(names.UNPREPARE, {CLAIM.uid: messages.ClaimAnswer("stuck")})
    through.driver.answer = Answer(body=body + UNKNOWN_FIELD)
    method = f"/{names.SERVICE_V1}/{names.UNPREPARE}"
    for count in (1, 2):
        answer = await through.channel.unary(method, REQUEST, timeout=10)
        assert answer.body == body + UNKNOWN_FIELD
        assert len(through.driver.seen) == count


async def test_a_whole_call_error_keeps_code_and_details(through: Through) -> None:
    through.driver.answer = Answer(status=Status(3, "bad argument", b"\x08\x03details"))
    method = f"/{names.SERVICE_V1}/{names.UNPREPARE}"
    answer = await through.channel.unary(method, REQUEST, timeout=10)
    assert answer.status is not None
    assert (answer.status.code, answer.status.details) == (3, b"\x08\x03details")
    assert answer.status.message.endswith("bad argument")


async def test_a_method_nobody_knows_is_relayed_both_ways(through: Through) -> None:
    caller = Caller([b"hello", b"", b"again"])
    await asyncio.wait_for(through.channel.relay(OTHER_METHOD, caller), 10)
    assert through.driver.streamed == [b"hello", b"", b"again"]
    assert caller.received == [
        b"one:" + sent if first else b"two:" + sent
        for sent in (b"hello", b"", b"again")
        for first in (True, False)
    ]
    assert caller.status is not None
    assert (caller.status.code, caller.status.message) == (9, "ends so")
    assert ("x-after", "last") in (*caller.trailers, *caller.status.trailers)
