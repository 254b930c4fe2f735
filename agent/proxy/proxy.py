"""The handlers that a link's endpoint serves, and what the reporter may ask of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from agent import names
from agent.core import wire
from agent.core.context import InFlight
from agent.core.model import Status
from agent.errors import TransportError
from agent.observe import logs
from agent.proxy.attempt import nobody
from agent.proxy.context import NO_DEADLINE, Context
from agent.proxy.prepare import PrepareCall
from agent.proxy.unprepare import unprepare
from agent.rpc.call import (
    CANCELLED,
    INTERNAL,
    UNAVAILABLE,
    Answer,
    Handler,
    Request,
    ServerStream,
    StreamHandler,
    service_of,
)

if TYPE_CHECKING:
    from agent.node.link import Link

_PREPARES = {f"/{service}/{names.PREPARE}" for service in names.PLUGIN_SERVICES.values()}
_UNPREPARES = {f"/{service}/{names.UNPREPARE}" for service in names.PLUGIN_SERVICES.values()}


class Proxy:
    """All calls of all links. Satisfies node's `Handlers` and report's `CallsPort`."""

    def __init__(self, ctx: Context, links: Callable[[], Iterable[Link]]) -> None:
        self._ctx = ctx
        self._links = links

    def unary(self, link: Link) -> Callable[[str], Handler | None]:
        """Handler of a method the agent understands; None: relay the bytes."""

        async def prepare(request: Request) -> Answer:
            return await self._counted(link, request, self._prepare)

        async def unprepare_(request: Request) -> Answer:
            return await self._counted(link, request, self._unprepare)

        async def ping(_: Request) -> Answer:
            return Answer(b"")

        table: dict[str, Handler] = {names.PING_METHOD: ping}
        table |= dict.fromkeys(_PREPARES, prepare) | dict.fromkeys(_UNPREPARES, unprepare_)
        return table.get

    def stream(self, link: Link) -> StreamHandler:
        """Relay of every other method, byte for byte, to the instance kubelet would pick.

        Without one it answers UNAVAILABLE, never UNIMPLEMENTED: kubelet takes the latter of a
        health service as final.
        """

        async def relay(stream: ServerStream) -> None:
            channel = link.pick(service_of(stream.method))
            if channel is None:
                await stream.end(nobody(link))
                return
            await channel.relay(stream.method, stream)

        return relay

    async def _counted(
        self, link: Link, request: Request, handle: Callable[[Link, Request], Awaitable[Answer]]
    ) -> Answer:
        metrics, loop = self._ctx.metrics, asyncio.get_running_loop()
        began, code = loop.time(), CANCELLED
        metrics.call_started(link.name, request.method)
        logs.bind(op=logs.new_op_id(), driver=link.name)
        try:
            answer = await handle(link, request)
            code = answer.code
            return answer
        except Exception:
            code = INTERNAL
            raise
        finally:
            metrics.call_ended(link.name, request.method, code, loop.time() - began)

    async def _prepare(self, link: Link, request: Request) -> Answer:
        try:
            call = PrepareCall(self._ctx, link, request)
        except wire.WireError:
            return await self._as_is(link, request)
        return await call.run()

    async def _unprepare(self, link: Link, request: Request) -> Answer:
        try:
            return await unprepare(self._ctx, link, request)
        except wire.WireError:
            return await self._as_is(link, request)

    async def _as_is(self, link: Link, request: Request) -> Answer:
        """A request we cannot read is the driver's to refuse."""
        channel = link.pick(service_of(request.method))
        now = asyncio.get_running_loop().time()
        left = NO_DEADLINE if request.deadline is None else request.deadline - now
        try:
            if channel is None:
                return Answer(None, nobody(link))
            return await channel.unary(
                request.method, request.body, metadata=request.metadata, timeout=left
            )
        except TransportError as error:
            return Answer(None, Status(UNAVAILABLE, f"dra-agent: {error.text}"))

    # What the reporter and the registry ask

    def in_flight(self, claim_uids: Iterable[str]) -> bool:
        """True while kubelet waits for a prepare of any of these claims."""
        uids = set(claim_uids)
        return any(uids & call.uids for call in self._ctx.live)

    def pin(self, driver: str, claim_uid: str) -> None:
        """Let no clock end a held verdict."""
        self._ctx.held.pin(driver, claim_uid)

    def unpin(self, driver: str, claim_uid: str) -> None:
        """Let a held verdict end by the clock again."""
        self._ctx.held.unpin(driver, claim_uid, asyncio.get_running_loop().time())

    def holding(self, driver: str, claim_uid: str) -> bool:
        """True while a held verdict answers for this claim."""
        now = asyncio.get_running_loop().time()
        return self._ctx.held.get(driver, claim_uid, now) is not None

    def active(self, driver: str) -> list[InFlight]:
        """Calls of a driver that kubelet waits for now, the oldest first."""
        return self._ctx.active(driver, asyncio.get_running_loop().time())

    def blocked(self, driver: str, claim_uid: str, by: str) -> None:
        """A claim was found to wait for another one, whose unprepare will then be waited for."""
        for call in self._ctx.live:
            if call.driver == driver and claim_uid in call.uids:
                call.blockers.add(by)

    def served_drivers(self) -> frozenset[str]:
        """Names of the drivers whose calls come through here."""
        return frozenset(link.name for link in self._links() if link.registered)

    def passed(self, namespace: str, name: str) -> bool:
        """True when a prepare of this claim went through here and worked."""
        return (namespace, name) in self._ctx.passed

    def pod_deleting(self, namespace: str, claims: Iterable[str]) -> None:
        """Kubelet's deletion of a pod waits for its prepare call: end the retries."""
        names_ = tuple(claims)
        for call in self._ctx.live:
            if call.uses(namespace, names_):
                call.cancel("the pod is being deleted")

    def pod_gone(self, namespace: str, claims: Iterable[str]) -> None:
        """The pod ended or is gone: its calls' retries and its held verdicts end."""
        names_ = tuple(claims)
        self.pod_deleting(namespace, names_)
        if self._ctx.held.drop_named(namespace, names_):
            for link in self._links():
                self._ctx.metrics.held(link.name, self._ctx.held.of_driver(link.name))

    def trigger(self, driver: str) -> None:
        """A renewal trigger: the next call decides afresh."""
        self._ctx.held.drop_driver(driver)
        self._ctx.metrics.held(driver, 0)  # also where the clock had ended the last one

    def stop_retrying(self) -> None:
        """SIGTERM: calls in flight get their answer, new ones get one attempt."""
        self._ctx.stopping = True
        for call in self._ctx.live:
            call.cancel("the agent is stopping", at_once=False)
