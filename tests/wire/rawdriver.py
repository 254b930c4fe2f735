"""A driver on bare HTTP/2 frames: what it answers to a prepare is a test's own bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from h2.events import DataReceived, StreamEnded

from agent import names
from agent.demo import messages
from tests.support.rpc import RawHeaders, RawPeer, RawServer, frame
from tests.wire.harness import DRIVER, Node

Answerer = Callable[[RawPeer, int], Awaitable[None]]
SERVED = ("v1.DRAPlugin",)


class RawDriver:
    """start() until close(); `answer` is called for each prepare and unprepare."""

    def __init__(
        self, node: Node, *, endpoint: str = "", versions: tuple[str, ...] = SERVED
    ) -> None:
        self.registration_path, path = node.driver_sockets
        self.path = endpoint or str(path)
        self.info = messages.Info(names.PLUGIN_TYPE, DRIVER, self.path, versions)
        self.answer: Answerer = self.prepared
        self.get_info: Answerer = self._get_info
        self.notified: Answerer = self._notified
        self.headers: list[RawHeaders] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = RawServer(self._run)
        self.registration = RawServer(self._run)

    async def start(self) -> None:
        await self.endpoint.start(self.path)
        await self.registration.start(str(self.registration_path))

    async def close(self) -> None:
        await self.registration.close()
        await self.endpoint.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, peer: RawPeer, stream: int, headers: RawHeaders) -> None:
        self.headers.append(headers)
        path = dict(headers)[b":path"].decode()
        if path == names.REGISTRATION_GET_INFO:
            await self.get_info(peer, stream)
        elif path == names.REGISTRATION_NOTIFY:
            await self.notified(peer, stream)
        else:
            # The peer reads on meanwhile: the body is still to come.
            self._tasks.add(asyncio.create_task(self._answer(peer, stream)))

    async def _answer(self, peer: RawPeer, stream: int) -> None:
        while not peer.of(StreamEnded, stream):
            await asyncio.sleep(0.002)
        await self.answer(peer, stream)

    async def _get_info(self, peer: RawPeer, stream: int) -> None:
        peer.answer(stream, frame(messages.info(self.info)))

    async def _notified(self, peer: RawPeer, stream: int) -> None:
        peer.answer(stream, frame(b""))

    async def prepared(self, peer: RawPeer, stream: int) -> None:
        """Success for the claims asked for."""
        uids = self.asked(peer, stream)
        answers = {uid: messages.ClaimAnswer() for uid in uids}
        peer.answer(stream, frame(messages.answers(names.PREPARE, answers)))

    def asked(self, peer: RawPeer, stream: int) -> list[str]:
        """UIDs of the claims asked for."""
        body = b"".join(event.data for event in peer.of(DataReceived, stream))
        return [claim.uid for claim in messages.parse_claims(names.PREPARE, body[5:])]
