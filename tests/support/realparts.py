"""What the model on sockets sees of either side: a driver that answers when it is told to, what
came to the agent, and a caller that waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.core.model import Status
from agent.node.link import Link
from agent.pb import dra_v1_pb2 as pb
from agent.proxy.proxy import Proxy
from agent.rpc.call import UNAVAILABLE, Answer, Handler, Request
from agent.rpc.channel import Channel
from tests.support.ledger import PREPARE, Ledger, Sent
from tests.support.modelnode import METHODS
from tests.support.node_standins import Driver


@dataclass
class ToldDriver(Driver):
    """A driver that answers when it is told to."""

    ledger: Ledger | None = None
    pending: list[tuple[Sent, asyncio.Future[Answer]]] = field(default_factory=list)
    given: int = 0

    async def _call(self, request: Request) -> Answer:
        assert self.ledger is not None
        op = next((op for op, method in METHODS.items() if method == request.method), "")
        sent = self.ledger.reached(op, request.body)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        mine = (sent, future)
        self.pending.append(mine)
        try:
            return await future
        finally:
            self.pending.remove(mine)
            self.ledger.left(sent)

    def answer(self, at: int, error: str = "") -> None:
        """Answer one call: prepared, or an error for its first claim."""
        sent, future = self.pending[at % len(self.pending)]
        if future.done():
            return
        if sent.op != PREPARE:
            future.set_result(Answer(b""))
            return
        message = pb.NodePrepareResourcesResponse()
        for uid in sent.uids:
            if error and uid == sent.uids[0]:
                message.claims[uid].error = error
                continue
            self.given += 1
            sent.granted[uid] = f"dev-{self.given}"
            message.claims[uid].devices.add(pool_name="node", device_name=sent.granted[uid])
        future.set_result(Answer(message.SerializeToString()))

    def refuse(self, at: int, text: str) -> None:
        """Answer one call with a status."""
        _, future = self.pending[at % len(self.pending)]
        if not future.done():
            future.set_result(Answer(None, Status(UNAVAILABLE, text)))


class Noted:
    """The proxy's handlers, and what came to them."""

    def __init__(self, proxy: Proxy, arrived: set[bytes]) -> None:
        self._proxy, self._arrived = proxy, arrived
        self.stream = proxy.stream

    def unary(self, link: Link) -> Callable[[str], Handler | None]:
        inner = self._proxy.unary(link)

        def pick(method: str) -> Handler | None:
            handler = inner(method)

            async def run(request: Request) -> Answer:
                assert handler is not None
                self._arrived.add(request.body)
                return await handler(request)

            return run if handler is not None else None

        return pick


async def patient_unary(channel: Channel, method: str, body: bytes, seconds: float) -> Answer:
    """Channel.unary by a caller that tells its time and waits on: the ledger says what is late."""
    outgoing = channel._outgoing()
    try:
        await outgoing.open(method, (), seconds)
        await outgoing.send(body)
        return await outgoing.answer()
    finally:
        outgoing.close()
