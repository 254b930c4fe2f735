"""Registered plugins as kubelet keeps them: registration, several instances, the wipe timer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent import names
from agent.aio import Tasks
from agent.core.model import Transport
from agent.demo import messages
from agent.demo.periods import Periods
from agent.demo.sockets import SocketWatcher
from agent.errors import AgentError, TransportError
from agent.rpc.channel import Channel

Tell = Callable[[str], None]


class RegistrationError(AgentError):
    """A registration that kubelet refuses or that did not come through; the text is kubelet's."""


@dataclass(slots=True)
class Backoff:
    """Not before `until`; the next wait is `delay` seconds."""

    until: float = 0.0
    delay: float = 0.0


class Plugin:
    """One registered instance of a driver, with the one connection kubelet keeps to it."""

    def __init__(
        self, info: messages.Info, service: str, *, periods: Periods, changed: Callable[[], None]
    ) -> None:
        self.name = info.name
        self.endpoint = info.endpoint
        self.service = service  # full gRPC service name
        self.connected = False
        self.last_error = "not connected yet"
        self.channel = Channel(info.endpoint, on_change=self._on_change)
        self._periods = periods
        self._changed = changed
        self._lost = asyncio.Event()

    async def keep_connected(self) -> None:
        """Connect now, and again whenever the connection ends, with grpc-go's back-off."""
        first, longest = self._periods.reconnect_backoff
        delay = first
        while True:
            self._lost.clear()
            try:
                await self.channel.connect()
            except TransportError as error:
                self.last_error = error.text
                await asyncio.sleep(delay * random.uniform(0.8, 1.2))
                delay = min(delay * 1.6, longest)
                continue
            delay = first
            self._on_change(True)
            await self._lost.wait()

    def _on_change(self, connected: bool) -> None:
        if not connected:
            self._lost.set()
            self.last_error = "connection lost"
        if connected != self.connected:
            self.connected = connected
            self._changed()


class Plugins:
    """The plugin manager: `run()` does not return, `close()` ends everything."""

    def __init__(self, registry: Path, *, periods: Periods, tell: Tell) -> None:
        self._watcher = SocketWatcher(registry)
        self._periods = periods
        self._tell = tell
        self._tasks = Tasks()
        self._registered: dict[str, tuple[int, Plugin | None]] = {}  # by socket path
        self._running: set[str] = set()
        self._backoff: dict[str, Backoff] = {}
        self._order: list[Plugin] = []  # in order of registration
        self._connections: dict[Plugin, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self.wiped: list[str] = []  # drivers whose ResourceSlices were deleted

    def of(self, driver: str) -> list[Plugin]:
        """Registered instances of a driver, oldest first."""
        return [plugin for plugin in self._order if plugin.name == driver]

    def pick(self, driver: str) -> Plugin | None:
        """The instance kubelet calls: newest connected, else the newest."""
        found = self.of(driver)[::-1]
        return next((p for p in found if p.connected), found[0] if found else None)

    async def run(self) -> None:
        """Watch, and bring registrations in line with the sockets."""
        self._tasks.start("plugin watcher", self._watcher.run())
        while True:
            await self._reconcile()
            await asyncio.sleep(self._periods.reconcile)

    async def close(self) -> None:
        """End all tasks and connections."""
        await self._tasks.close()
        self._watcher.close()
        for plugin in self._order:
            await plugin.channel.close()

    async def _reconcile(self) -> None:
        wanted = self._watcher.wanted
        for path, (stamp, plugin) in list(self._registered.items()):
            if wanted.get(path) != stamp and path not in self._running:
                del self._registered[path]
                self._backoff.pop(path, None)
                if plugin is not None:
                    self._tell(f"{plugin.name}: registration socket gone, unregistered")
                    await self._remove(plugin)
        now = asyncio.get_running_loop().time()
        for path, stamp in wanted.items():
            waits = self._backoff.get(path, Backoff()).until > now
            if path not in self._registered and path not in self._running and not waits:
                self._running.add(path)
                self._tasks.start(f"register {path}", self._register(path, stamp))

    async def _register(self, path: str, stamp: int) -> None:
        socket = Channel(path)
        try:
            plugin = await self._registration(socket, path)
        except RegistrationError as error:
            self._tell(str(error))
            backoff = self._backoff.setdefault(path, Backoff())
            first, longest = self._periods.register_backoff
            backoff.delay = min(backoff.delay * 2, longest) or first
            backoff.until = asyncio.get_running_loop().time() + backoff.delay
        else:
            self._registered[path] = (stamp, plugin)
            self._backoff.pop(path, None)
        finally:
            self._running.discard(path)
            await socket.close()

    async def _registration(self, socket: Channel, path: str) -> Plugin | None:
        try:
            async with asyncio.timeout(self._periods.dial):
                await socket.connect()
        except (TransportError, TimeoutError) as error:
            raise RegistrationError(
                f"RegisterPlugin error -- dial failed at socket {path}, err: {error}"
            ) from error
        body = await self._ask(socket, names.REGISTRATION_GET_INFO, b"", self._periods.get_info)
        try:
            info = messages.parse_info(body)
        except ValueError as error:
            raise RegistrationError(f"RegisterPlugin error -- {error}") from error
        if info.type != names.PLUGIN_TYPE:
            await self._notify(
                socket,
                "RegisterPlugin error -- no handler registered for plugin type: "
                f"{info.type} at socket {path}",
            )
            return None
        try:
            plugin = await self._add(info, path)
        except RegistrationError as error:
            await self._notify(socket, str(error))
            raise
        try:
            await self._notify(socket, "")
        except RegistrationError:
            await self._remove(plugin)
            raise
        self._tell(f"{info.name}: registered, endpoint {Path(info.endpoint).name}")
        return plugin

    async def _add(self, info: messages.Info, path: str) -> Plugin:
        failed = "RegisterPlugin error -- plugin {} failed with err: {}"
        if not info.versions:
            raise RegistrationError(
                failed.format("validation", "empty list of supported gRPC services")
            )
        # The plugin's own order decides.
        chosen = next((v for v in info.versions if v in names.PLUGIN_SERVICES), None)
        if chosen is None:
            raise RegistrationError(
                failed.format("validation", "none of services supported by the plugin are known")
            )
        endpoint = info.endpoint or path
        if any(plugin.endpoint == endpoint for plugin in self.of(info.name)):
            text = f"endpoint {endpoint} already registered for DRA driver plugin {info.name}"
            raise RegistrationError(failed.format("registration", text))
        info = messages.Info(info.type, info.name, endpoint, info.versions)
        plugin = Plugin(
            info,
            names.PLUGIN_SERVICES[chosen],
            periods=self._periods,
            changed=lambda: self._sync(info.name),
        )
        self._order.append(plugin)
        self._connections[plugin] = self._tasks.start(
            f"connect {endpoint}", plugin.keep_connected()
        )
        self._sync(info.name)
        return plugin

    async def _remove(self, plugin: Plugin) -> None:
        self._order.remove(plugin)
        self._connections.pop(plugin).cancel()
        await plugin.channel.close()
        self._sync(plugin.name)

    async def _ask(self, socket: Channel, method: str, body: bytes, limit: float) -> bytes:
        try:
            answer = await socket.unary(method, body, timeout=limit)
        except TransportError as error:
            kind = "deadline exceeded" if error.kind is Transport.DEADLINE else error.text
            raise RegistrationError(f"RegisterPlugin error -- {method}: {kind}") from error
        if answer.body is None:
            raise RegistrationError(f"RegisterPlugin error -- {method}: {answer.status}")
        return answer.body

    async def _notify(self, socket: Channel, error: str) -> None:
        body = messages.registration_status(error)
        await self._ask(socket, names.REGISTRATION_NOTIFY, body, self._periods.notify)

    def _sync(self, driver: str) -> None:
        """Start or stop the timer that deletes the driver's ResourceSlices."""
        timer = self._wipes.pop(driver, None)
        if any(plugin.connected for plugin in self.of(driver)):
            if timer is not None:
                timer.cancel()
            return
        if timer is not None and not timer.done():
            self._wipes[driver] = timer
            return
        self._wipes[driver] = self._tasks.start(f"wipe {driver}", self._wipe(driver))

    async def _wipe(self, driver: str) -> None:
        await asyncio.sleep(self._periods.wipe)
        self.wiped.append(driver)
        self._tell(f"{driver}: no plugin connected, ResourceSlices deleted")
