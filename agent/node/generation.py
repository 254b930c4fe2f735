"""One pair of the agent's sockets: the registration socket and the endpoint behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agent import names
from agent.core import text
from agent.core.model import Status
from agent.core.retire import View
from agent.node.info import parse_status
from agent.rpc.call import UNIMPLEMENTED, Answer, Handler, Request, ServerStream, StreamHandler
from agent.rpc.server import Server

log = logging.getLogger(__name__)

# While draining, the calls in flight are counted this often, in seconds.
_LOOK = 0.025


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where a generation lives, and what it answers to GetInfo."""

    driver: str
    name: str  # 6 hex digits
    registration: str
    endpoint: str
    info: bytes


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a generation answers; callbacks get its name."""

    unary: Callable[[str], Handler | None]
    stream: StreamHandler
    get_info_delay: float  # seconds
    # Asked before the notification counts; its answer is kubelet's (intake relays it).
    notify: Callable[[Request], Awaitable[Answer]] | None
    on_notify: Callable[[str, bool], None]
    on_connect: Callable[[str], None]
    silent: tuple[str, ...] = ()  # streams that are held open and never answered


class Generation:
    """Published once, stopped once, unlinked once; in this order."""

    def __init__(self, sockets: Sockets, behaviour: Behaviour) -> None:
        self.sockets = sockets
        self.stopped = False
        self._behaviour = behaviour
        self._endpoint = Server(
            unary=behaviour.unary,
            stream=self._stream,
            on_connect=lambda: behaviour.on_connect(sockets.name),
        )
        methods: dict[str, Handler] = {
            names.REGISTRATION_GET_INFO: self._get_info,
            names.REGISTRATION_NOTIFY: self._notify,
        }
        self._registration = Server(unary=methods.get, stream=_unknown)

    @property
    def name(self) -> str:
        """Its 6 hex digits."""
        return self.sockets.name

    async def publish(self) -> None:
        """Listen: kubelet may dial the endpoint before it says that it registered us.

        Raises UserError or OSError when a socket cannot be made; none is left behind.
        """
        try:
            await self._endpoint.start(self.sockets.endpoint)
            await self._registration.start(self.sockets.registration)
        except BaseException:
            await self.close()
            raise

    @property
    def removed(self) -> bool:
        """True when somebody else has removed the registration socket: kubelet has let us go."""
        return not self.stopped and self._registration.removed

    def view(self) -> View:
        """What the endpoint has at this moment."""
        return View(self._endpoint.unanswered, self._endpoint.connections > 0)

    def describe(self) -> dict[str, Any]:
        """State for people, as JSON types."""
        view = self.view()
        return {
            "id": self.name,
            "registration": self.sockets.registration,
            "endpoint": self.sockets.endpoint,
            "inFlight": view.in_flight,
            "connected": view.connected,
            "stopped": self.stopped,
        }

    def stop(self) -> None:
        """Send kubelet to its next connected plugin: no listener, connections aborted.

        Without GOAWAY, with which kubelet would first let its calls here be ended.
        """
        self.stopped = True
        self._endpoint.stop_listening()
        self._endpoint.abort_connections()

    async def unlink(self) -> None:
        """Remove both sockets. Only after `stop()`: kubelet notices a missing socket within a
        second, goes on sending until then, and cuts what it sent."""
        self._endpoint.unlink()
        self._registration.unlink()
        await self.close()

    async def drain(self, until: float) -> None:
        """Stop and unlink when each call has its answer, or at `until` (loop.time())."""
        loop = asyncio.get_running_loop()
        while self._endpoint.unanswered and loop.time() < until:  # noqa: ASYNC110 - for seconds
            await asyncio.sleep(_LOOK)
        self.stop()
        await self.unlink()

    async def close(self) -> None:
        """End all at once, in the order of retiring."""
        await self._endpoint.close()
        await self._registration.close()

    async def _get_info(self, _: Request) -> Answer:
        # Late, so that after a restart of kubelet, which asks all sockets at once, the driver
        # registers first and we come after it. Kubelet waits 1 s.
        await asyncio.sleep(self._behaviour.get_info_delay)
        return Answer(body=self.sockets.info)

    async def _notify(self, request: Request) -> Answer:
        try:
            registered, error = parse_status(request.body)
        except ValueError:
            registered, error = False, "a message that cannot be read"
        if not registered:
            log.warning(
                "kubelet refused %s (%s): %s",
                self.sockets.driver,
                self.name,
                text.clean(error),
            )
        relay = self._behaviour.notify
        answer = await relay(request) if relay else Answer(body=b"")
        self._behaviour.on_notify(self.name, registered)
        return answer

    async def _stream(self, stream: ServerStream) -> None:
        if stream.method not in self._behaviour.silent:
            await self._behaviour.stream(stream)
            return
        # Kubelet keeps the driver's health states as long as neither connection says anything
        # new and neither stream ends. It goes away by cancelling or closing its connection,
        # which ends this task.
        while await stream.recv() is not None:
            pass
        await asyncio.get_running_loop().create_future()


async def _unknown(stream: ServerStream) -> None:
    await stream.end(Status(UNIMPLEMENTED, f"unknown method {stream.method}"))
