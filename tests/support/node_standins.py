"""A small driver and a small kubelet on real sockets, for tests of registration.

The kubelet does what the real one is known to do: it looks at its registry on a tick, asks each
new socket on a connection of its own, connects to the endpoint eagerly, keeps all registrations
of one driver name in the order of their registration, calls the newest that is connected, and
forgets a registration when its socket is unlinked or made anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from agent import names
from agent.aio import Tasks
from agent.core.model import Status
from agent.errors import TransportError
from agent.node.info import make_info, make_status, parse_info, parse_status
from agent.node.link import Link
from agent.node.watch import Identity, identity_of
from agent.rpc.call import UNAVAILABLE, Answer, Handler, Request, ServerStream, StreamHandler
from agent.rpc.channel import Channel
from agent.rpc.server import Server

PREPARE_V1 = f"/{names.SERVICE_V1}/{names.PREPARE}"
V1 = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


@dataclass
class Driver:
    """A driver: answers every unary call of its endpoint with its tag and the call's body."""

    root: str
    name: str
    tag: str = "driver"
    versions: tuple[str, ...] = V1
    socket: str = ""  # base name of the registration socket
    common: bool = False  # one socket for registration and service
    calls: list[str] = field(default_factory=list)
    notified: list[tuple[bool, str]] = field(default_factory=list)
    notify_status: Status | None = None
    hold: asyncio.Event | None = None  # calls wait for it
    registry: str = ""

    def __post_init__(self) -> None:
        registry = self.registry or os.path.join(self.root, "plugins_registry")
        self.registration_path = os.path.join(registry, self.socket or f"{self.name}-reg.sock")
        data = os.path.join(self.root, "plugins", self.name)
        self.endpoint_path = os.path.join(data, f"{self.tag}.sock")
        if self.common:
            self.endpoint_path = self.registration_path
        self._servers: list[Server] = []

    async def start(self) -> None:
        methods: dict[str, Handler] = {
            names.REGISTRATION_GET_INFO: self._get_info,
            names.REGISTRATION_NOTIFY: self._notify,
        }
        both = Server(unary=lambda m: methods.get(m, self._call), stream=self._stream)
        self._servers = [both]
        if not self.common:
            plugin = Server(unary=self._unary, stream=self._stream)
            self._servers = [plugin, both]
            await plugin.start(self.endpoint_path)
        await both.start(self.registration_path)

    async def stop(self) -> None:
        """Leave in order: both sockets are unlinked."""
        for server in reversed(self._servers):
            await server.close()

    async def kill(self) -> None:
        """As SIGKILL: connections are lost, the sockets' files stay."""
        for server in self._servers:
            server.stop_listening()
            server.abort_connections()
            await server.tasks.close()

    def _unary(self, method: str) -> Handler | None:
        return None if method in names.HEALTH_METHODS else self._call

    async def _get_info(self, _: Request) -> Answer:
        endpoint = "" if self.common else self.endpoint_path
        return Answer(make_info(name=self.name, endpoint=endpoint, versions=self.versions))

    async def _notify(self, request: Request) -> Answer:
        self.notified.append(parse_status(request.body))
        return Answer(status=self.notify_status) if self.notify_status else Answer(b"")

    async def _call(self, request: Request) -> Answer:
        self.calls.append(request.method)
        if self.hold is not None:
            await self.hold.wait()
        return Answer(self.tag.encode() + b":" + request.body)

    async def _stream(self, stream: ServerStream) -> None:
        self.calls.append(stream.method)
        body = await stream.recv()
        await stream.send(self.tag.encode() + b":" + (body or b""))
        await stream.end()


@dataclass
class Plugin:
    """One registration that kubelet knows."""

    path: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    channel: Channel

    @property
    def ours(self) -> bool:
        return os.path.basename(self.path).startswith(names.SOCKET_PREFIX)


class Kubelet:
    """See the module; `plugins` is in the order of registration."""

    def __init__(self, root: str, *, tick: float = 0.03) -> None:
        self.registry = os.path.join(root, "plugins_registry")
        os.makedirs(self.registry, exist_ok=True)
        self.plugins: list[Plugin] = []
        self.log: list[str] = []
        self._tick = tick
        self._seen: dict[str, Identity] = {}
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.start("kubelet", self._run())

    async def stop(self) -> None:
        await self._tasks.close()
        for plugin in self.plugins:
            await plugin.channel.close()
        self.plugins.clear()
        self._seen.clear()

    async def restart(self) -> None:
        await self.stop()
        self.start()

    def of(self, driver: str) -> list[Plugin]:
        return [p for p in self.plugins if p.name == driver]

    def newest(self, driver: str) -> Plugin | None:
        """As DRAPluginManager: the newest that is connected, else the newest."""
        known = self.of(driver)
        up = [p for p in known if p.channel.connected]
        return (up or known)[-1] if known else None

    def through_agent(self, driver: str) -> bool:
        newest = self.newest(driver)
        return newest is not None and newest.ours and newest.channel.connected

    async def call(self, driver: str, body: bytes = b"x", method: str = PREPARE_V1) -> Answer:
        """One call as for a pod. LookupError: not registered."""
        plugin = self.newest(driver)
        if plugin is None:
            raise LookupError(f"DRA driver {driver} is not registered")
        return await plugin.channel.unary(method, body, timeout=20)

    async def _run(self) -> None:
        while True:
            now: dict[str, Identity] = {}
            for name in sorted(os.listdir(self.registry)):
                path = os.path.join(self.registry, name)
                identity = identity_of(path)
                if identity is not None and not name.startswith("."):
                    now[path] = identity
            for path in [p for p, identity in self._seen.items() if now.get(p) != identity]:
                await self._unregister(path)
            for path, identity in now.items():
                if path not in self._seen:
                    self._seen[path] = identity
                    self._tasks.start(f"register {path}", self._register(path))
            await asyncio.sleep(self._tick)

    async def _unregister(self, path: str) -> None:
        del self._seen[path]
        for plugin in [p for p in self.plugins if p.path == path]:
            self.plugins.remove(plugin)
            self.log.append(f"unregistered {os.path.basename(path)}")
            await plugin.channel.close()

    async def _register(self, path: str) -> None:
        registration = Channel(path)
        try:
            await registration.connect()
            answer = await registration.unary(names.REGISTRATION_GET_INFO, b"", timeout=1)
            assert answer.body is not None
            info = parse_info(answer.body)
            endpoint = info.endpoint or path
            channel = Channel(endpoint, on_change=lambda up: self._changed(path, up))
            plugin = Plugin(path, info.name, endpoint, info.versions, channel)
            self.plugins.append(plugin)
            self.log.append(f"registered {os.path.basename(path)}")
            self._tasks.start(f"connect {endpoint}", self._connect(plugin))
            body = make_status(registered=True)
            await registration.unary(names.REGISTRATION_NOTIFY, body, timeout=5)
        except TransportError as error:
            self.log.append(f"failed {os.path.basename(path)}: {error}")
            await asyncio.sleep(0.1)
            self._seen.pop(path, None)
        finally:
            await registration.close()

    def _changed(self, path: str, up: bool) -> None:
        self.log.append(f"{'connected' if up else 'lost'} {os.path.basename(path)}")
        if not up:
            for plugin in [p for p in self.plugins if p.path == path]:
                self._tasks.start(f"connect {plugin.endpoint}", self._connect(plugin))

    async def _connect(self, plugin: Plugin) -> None:
        while plugin in self.plugins:
            try:
                await plugin.channel.connect()
                return
            except TransportError:
                await asyncio.sleep(0.05)


class Relay:
    """The plainest proxy there can be: one attempt, waits while the driver is away."""

    def __init__(self, hold: float = 0.5) -> None:
        self.hold = hold
        self.passed: list[str] = []

    def unary(self, link: Link) -> Callable[[str], Handler | None]:
        async def forward(request: Request) -> Answer:
            self.passed.append(request.method)
            service = request.method.split("/")[1]
            loop = asyncio.get_running_loop()
            end = loop.time() + self.hold
            while (channel := link.pick(service)) is None:
                away = link.away_since
                left = (away + self.hold if away is not None else end) - loop.time()
                if left <= 0 or not await link.wait_connected(left):
                    return Answer(status=Status(UNAVAILABLE, "driver away"))
            try:
                return await channel.unary(request.method, request.body, timeout=10)
            except TransportError as error:
                return Answer(status=Status(UNAVAILABLE, error.text))

        return lambda method: None if method in names.HEALTH_METHODS else forward

    def stream(self, link: Link) -> StreamHandler:
        async def relay(stream: ServerStream) -> None:
            self.passed.append(stream.method)
            channel = link.pick(stream.method.split("/")[1])
            if channel is None:
                await stream.end(Status(UNAVAILABLE, "driver away"))
                return
            await channel.relay(stream.method, stream)

        return relay
