"""One registration of a driver: what it says of itself, and the connection to its endpoint."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from agent import names
from agent.aio import Tasks, wait
from agent.core import text
from agent.core.model import Transport
from agent.errors import TransportError
from agent.node.choice import OWN, Choice, is_own
from agent.node.info import PluginInfo, parse_info
from agent.node.watch import Found, Identity
from agent.rpc.call import Answer
from agent.rpc.channel import Channel

log = logging.getLogger(__name__)

# Kubelet's own limits: GetInfo 1 s, NotifyRegistrationStatus 5 s.
GET_INFO_TIMEOUT = 1.0
NOTIFY_TIMEOUT = 4.5
# kubelet's registration retries begin at 0.5 s and end at 122 s; nobody waits for ours but us.
_BACKOFF_FIRST, _BACKOFF_LAST = 0.1, 10.0
# A call that began before an instance left may end through it: kubelet gives it 45 s.
_LINGER = 50.0


class State(StrEnum):
    """Where an instance stands."""

    UNKNOWN = "unknown"  # GetInfo not answered yet
    IGNORED = "ignored"  # not a driver, or not one we serve
    CONNECTING = "connecting"
    CONNECTED = "connected"
    DOWN = "down"  # connect() fails


class Instance:
    """A driver's registration socket and its endpoint, from their appearance to their end."""

    def __init__(
        self,
        found: Found,
        *,
        appeared: int,
        at_start: bool,
        choice: Choice,
        reconnect: float,
        on_state: Callable[[Instance], None],
    ) -> None:
        self.path = found.path
        self.identity: Identity = found.identity
        self.appeared = appeared
        self.settled = False  # a generation was published for it
        # There before us and answering at once: kubelet has registered it already.
        self.at_start = at_start
        self.state = State.UNKNOWN
        self.info: PluginInfo | None = None
        self.channel: Channel | None = None
        self.last_error = ""
        self._choice = choice
        self._reconnect = reconnect
        self._on_state = on_state
        self._poked = asyncio.Event()
        self._lost = asyncio.Event()
        self._gone = False
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to ask and to connect."""
        self._tasks.start(f"instance {os.path.basename(self.path)}", self._run())

    def poke(self) -> None:
        """Something changed in the registry: try at once whatever is being waited for."""
        self._poked.set()

    @property
    def endpoint(self) -> str:
        """Path of the driver's endpoint; the registration socket when it named none."""
        return (self.info.endpoint if self.info else "") or self.path

    @property
    def connected(self) -> bool:
        """True while a call could be sent."""
        return self.state is State.CONNECTED

    @property
    def ended(self) -> bool:
        """True when nothing of it runs any more."""
        return len(self._tasks) == 0

    def describe(self) -> dict[str, Any]:
        """State for people, as JSON types."""
        return {
            "socket": self.path,
            "endpoint": self.endpoint,
            "state": str(self.state),
            "versions": list(self.info.versions) if self.info else [],
            "lastError": self.last_error,
        }

    async def registration(self, method: str, body: bytes, timeout: float) -> Answer:
        """Call the registration socket on a connection of its own. Raises TransportError."""
        channel = Channel(self.path)
        try:
            async with asyncio.timeout(timeout):
                await channel.connect()
            return await channel.unary(method, body, timeout=timeout)
        finally:
            await channel.close()

    async def says_the_same(self, identity: Identity) -> bool:
        """Ask again when only ctime is another; True, and `identity` is noted, for the same answer.

        It may have been a chmod after bind(), or a socket made anew: the file system gives the
        inode of the old one back at once. Once a generation was published it is another instance.
        """
        same_file = identity[:2] == self.identity[:2] and identity != self.identity
        if not same_file or self.settled or self.info is None:
            return False
        try:
            answer = await self.registration(names.REGISTRATION_GET_INFO, b"", GET_INFO_TIMEOUT)
        except (TransportError, TimeoutError):
            return False
        if answer.body != self.info.raw:
            return False
        self.identity = identity
        return True

    async def leave(self) -> None:
        """The registration is gone: no new calls; those in flight may end."""
        self._gone = True
        self._poked.set()
        self._lost.set()
        if self.channel is None or not self.channel.connected:
            await self.close()
        else:
            self._tasks.start(f"linger {os.path.basename(self.path)}", self._linger())

    async def close(self) -> None:
        """End everything now."""
        self._gone = True
        await self._tasks.close()
        if self.channel is not None:
            await self.channel.close()

    async def _linger(self) -> None:
        self._lost.clear()
        if self.channel is not None and self.channel.connected:
            await wait(self._lost, _LINGER)
            await self.channel.close()

    async def _run(self) -> None:
        self.info = await self._ask()
        reason = self._choice.refusal(self.info, self.endpoint)
        if reason:
            log.info("%s is not served: %s", text.clean(self.path, 256), reason)
            self.last_error = reason
            self._set(State.IGNORED)
            return
        self.channel = Channel(self.endpoint, on_change=self._changed)
        self._set(State.CONNECTING)
        await self._keep_connected(self.channel)

    async def _ask(self) -> PluginInfo:
        """GetInfo until it is answered."""
        pause = _BACKOFF_FIRST
        while True:
            self._poked.clear()
            try:
                answer = await self.registration(names.REGISTRATION_GET_INFO, b"", GET_INFO_TIMEOUT)
                if answer.body is not None:
                    return parse_info(answer.body)
                error = answer.status.message if answer.status else "no answer"
            except (TransportError, TimeoutError, ValueError) as failure:
                error = str(failure) or type(failure).__name__
            self.last_error = text.clean(error, 256)
            if pause == _BACKOFF_FIRST:
                shown = text.clean(self.path, 256)
                log.info("%s does not answer GetInfo yet: %s", shown, self.last_error)
            self.at_start = False
            await wait(self._poked, pause)
            pause = min(pause * 2, _BACKOFF_LAST)

    async def _keep_connected(self, channel: Channel) -> None:
        loop = asyncio.get_running_loop()
        while not self._gone:
            self._poked.clear()
            began = loop.time()
            try:
                if is_own(channel.path):  # a link may come later
                    raise TransportError(Transport.REFUSED, OWN, sent=False)
                await channel.connect()
            except TransportError as error:
                self.last_error = text.clean(error.text, 256)
                self._set(State.DOWN)
                await wait(self._poked, self._reconnect)
                continue
            self._lost.clear()
            if channel.connected:
                self._set(State.CONNECTED)
                await self._lost.wait()
            # At once, but not in a circle with a driver that accepts and hangs up.
            if loop.time() - began < self._reconnect and not self._gone:
                await wait(self._poked, self._reconnect)

    def _changed(self, connected: bool) -> None:
        if connected:
            return
        self._lost.set()
        if self.state is State.CONNECTED:
            self._set(State.CONNECTING)

    def _set(self, state: State) -> None:
        if self.state is not state and not self._gone:
            self.state = state
            self._on_state(self)
