"""A small proxy that does one thing wrong, so that the comparison can be seen to see it.

It takes the driver's registration in a folder of its own, as the agent's intake does, and passes
everything through but for its fault:

    none            nothing wrong: the control
    versions        the driver's versions in the other order
    unimplemented   UNIMPLEMENTED where the driver said UNAVAILABLE
    late-prepare    a prepare is sent once more after the claim's unprepare
    made-up         success where the driver said error
    dropped         one entry of a prepare's answer is missing
    heartbeat       of a health stream only the first message passes
    bypass          the kubelet is told the driver's own endpoint
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import replace
from pathlib import Path

from agent import names
from agent.core import wire
from agent.errors import TransportError
from agent.node import info
from agent.rpc.call import (
    UNAVAILABLE,
    UNIMPLEMENTED,
    Answer,
    Handler,
    Request,
    ServerStream,
    status_of,
)
from agent.rpc.channel import Channel
from agent.rpc.server import Server

from ..harness.cluster import Node
from ..harness.driver import Driver

FAULTS = (
    "versions",
    "unimplemented",
    "late-prepare",
    "made-up",
    "dropped",
    "heartbeat",
    "bypass",
)
LIMIT = 45.0
_numbers = itertools.count()


class ThroughFaulty:
    """One proxy per driver, all with the same fault, in one thread."""

    def __init__(self, node: Node, case: str, fault: str) -> None:
        self.node, self.fault = node, fault
        self.patience = 1.0 if fault == "none" else 0.4  # a fault may keep what is waited for away
        self.folder = node.plugins / f"faulty-{case}"
        self.registry: Path | None = self.folder / "registry"
        for folder in (self.folder, self.folder / "registry"):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.registered: set[str] = set()
        self.loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, driver: Driver) -> None:
        def begin() -> None:
            proxy = _Proxy(self, driver.name, str(driver.registration_socket))
            self._tasks.append(self.loop.create_task(proxy.run(self._end)))

        self.loop.call_soon_threadsafe(begin)

    def served(self, name: str, newest: str) -> bool:
        return name in self.registered

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        async def all_of_it() -> None:
            await self._end.wait()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self.loop.run_until_complete(all_of_it())
        self.loop.close()


class _Proxy:
    """Between the kubelet and one driver."""

    def __init__(self, owner: ThroughFaulty, name: str, socket: str) -> None:
        number = next(_numbers)
        self.owner, self.name, self.fault = owner, name, owner.fault
        self.registrar = Channel(socket)
        self.service: Channel | None = None
        self.info = info.PluginInfo(b"", "", "", "", ())
        self.endpoint = str(owner.folder / f"{number}.sock")
        self.published = str(owner.node.registry / f"faulty-{number}.sock")
        self.prepares: dict[str, Request] = {}

    async def run(self, end: asyncio.Event) -> None:
        while True:
            try:
                await self.registrar.connect()
                break
            except TransportError:
                await asyncio.sleep(0.05)
        answer = await self.registrar.unary(names.REGISTRATION_GET_INFO, b"", timeout=5)
        self.info = info.parse_info(answer.body or b"")
        self.service = Channel(self.info.endpoint)
        await self.service.connect()
        calls = Server(unary=self._method, stream=self._relay)
        registration = Server(unary=self._registration, stream=_refuse)
        await calls.start(self.endpoint)
        await registration.start(self.published)
        await end.wait()
        for server in (registration, calls):
            await server.close()
        await self.service.close()
        await self.registrar.close()

    def _registration(self, method: str) -> Handler | None:
        return {
            names.REGISTRATION_GET_INFO: self._get_info,
            names.REGISTRATION_NOTIFY: self._notify,
        }.get(method)

    async def _get_info(self, request: Request) -> Answer:
        endpoint = self.info.endpoint if self.fault == "bypass" else self.endpoint
        told = self.info
        if self.fault == "versions":
            turned = info.make_info(
                name=self.name, endpoint=endpoint, versions=tuple(reversed(told.versions))
            )
            return Answer(turned)
        return Answer(info.republished(told, endpoint, plugin_only=False))

    async def _notify(self, request: Request) -> Answer:
        answer = await self.registrar.unary(request.method, request.body, timeout=5)
        self.owner.registered.add(self.name)
        return answer

    def _method(self, method: str) -> Handler | None:
        return self._call if method.rpartition("/")[2] in (names.PREPARE, names.UNPREPARE) else None

    async def _call(self, request: Request) -> Answer:
        method = request.method.rpartition("/")[2]
        answer = await self._forward(request)
        uids = ",".join(claim.uid for claim in wire.parse_claims(request.body))
        if method == names.PREPARE:
            self.prepares[uids] = request
            return self._spoiled(answer)
        late = self.prepares.pop(uids, None)
        if self.fault == "late-prepare" and late is not None:
            await self._forward(late)
        return answer

    async def _forward(self, request: Request) -> Answer:
        assert self.service is not None
        loop = asyncio.get_running_loop()
        left = LIMIT if request.deadline is None else request.deadline - loop.time()
        try:
            await self.service.connect()
            return await self.service.unary(
                request.method, request.body, metadata=request.metadata, timeout=max(left, 0.1)
            )
        except TransportError as error:
            return Answer(status=status_of(error))

    def _spoiled(self, answer: Answer) -> Answer:
        if answer.status is not None:
            if self.fault == "unimplemented" and answer.status.code == UNAVAILABLE:
                return replace(answer, status=replace(answer.status, code=UNIMPLEMENTED))
            return answer
        entries = [(uid, each.raw) for uid, each in wire.entries(answer.body or b"").items()]
        if self.fault == "made-up":
            entries = [(uid, b"") for uid, _ in entries]
        elif self.fault == "dropped":
            entries = entries[1:]
        else:
            return answer
        return replace(answer, body=wire.response(entries))

    async def _relay(self, stream: ServerStream) -> None:
        assert self.service is not None
        through = _FirstOnly(stream) if self.fault == "heartbeat" else stream
        try:
            await self.service.connect()
            await self.service.relay(stream.method, through)
        except TransportError as error:
            await stream.end(status_of(error))


class _FirstOnly:
    """A stream that swallows every message to the caller but the first."""

    def __init__(self, stream: ServerStream) -> None:
        self._stream, self._sent = stream, False
        self.method, self.metadata, self.deadline = stream.method, stream.metadata, stream.deadline
        self.recv, self.send_initial, self.end = stream.recv, stream.send_initial, stream.end

    async def send(self, body: bytes) -> None:
        if not self._sent:
            self._sent = True
            await self._stream.send(body)


async def _refuse(stream: ServerStream) -> None:
    await stream.end()
