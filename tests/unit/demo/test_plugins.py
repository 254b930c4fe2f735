from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agent import names
from agent.demo import messages
from agent.demo.plugins import Plugins
from agent.demo.processes import until
from agent.rpc.call import Answer, Handler, Request, ServerStream
from agent.rpc.server import Server
from tests.support.process import FAST, short_root


async def no_stream(stream: ServerStream) -> None:
    await stream.end(None)


@dataclass
class Instance:
    """One registration socket with an endpoint of its own."""

    info: messages.Info
    notified: list[tuple[bool, str]] = field(default_factory=list)
    refuse_notify: int = 0
    registration: Server | None = None
    endpoint: Server | None = None

    async def start(self, path: Path, *, endpoint: bool = True) -> None:
        if endpoint:
            self.endpoint = Server(unary=lambda _: None, stream=no_stream)
            await self.endpoint.start(self.info.endpoint)
        self.registration = Server(unary=self._method, stream=no_stream)
        await self.registration.start(str(path))

    async def close(self) -> None:
        for server in (self.registration, self.endpoint):
            if server is not None:
                await server.close()

    def _method(self, method: str) -> Handler | None:
        return self._get_info if method == names.REGISTRATION_GET_INFO else self._notify

    async def _get_info(self, request: Request) -> Answer:
        return Answer(body=messages.info(self.info))

    async def _notify(self, request: Request) -> Answer:
        self.notified.append(messages.parse_registration_status(request.body))
        if self.refuse_notify:
            self.refuse_notify -= 1
            await asyncio.sleep(30)
        return Answer(body=b"")


@dataclass
class Bench:
    root: Path
    plugins: Plugins
    said: list[str]
    instances: list[Instance] = field(default_factory=list)

    def make(
        self,
        name: str,
        versions: tuple[str, ...] = ("v1.DRAPlugin",),
        *,
        endpoint: str = "",
        kind: str = names.PLUGIN_TYPE,
    ) -> Instance:
        path = endpoint or str(self.root / f"{name}.sock")
        instance = Instance(messages.Info(kind, "d", path, versions))
        self.instances.append(instance)
        return instance

    async def add(self, name: str, versions: tuple[str, ...] = ("v1.DRAPlugin",)) -> Instance:
        instance = self.make(name, versions)
        await instance.start(self.root / "r" / f"{name}-reg.sock")
        await until(lambda: (True, "") in instance.notified, f"{name} registered")
        return instance

    def picked(self) -> str:
        plugin = self.plugins.pick("d")
        return Path(plugin.endpoint).stem if plugin else ""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with short_root() as root:
        (root / "r").mkdir()
        said: list[str] = []
        plugins = Plugins(root / "r", periods=replace(FAST, notify=0.3), tell=said.append)
        task = asyncio.create_task(plugins.run())
        bench = Bench(root, plugins, said)
        yield bench
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await plugins.close()
        for instance in bench.instances:
            await instance.close()


async def test_the_newest_connected_instance_is_called(bench: Bench) -> None:
    await bench.add("old")
    new = await bench.add("new")
    await until(lambda: bench.picked() == "new", "the newest")
    assert new.endpoint is not None
    new.endpoint.stop_listening()
    new.endpoint.abort_connections()
    await until(lambda: bench.picked() == "old", "the older one, still connected")
    assert new.registration is not None
    new.registration.unlink()
    await until(lambda: len(bench.plugins.of("d")) == 1, "the newest gone")


async def test_a_lost_connection_is_made_again_and_never_deregisters(bench: Bench) -> None:
    one = await bench.add("one")
    await until(lambda: bench.plugins.of("d")[0].connected, "connected")
    assert one.endpoint is not None
    one.endpoint.abort_connections()
    await until(lambda: one.endpoint is not None and one.endpoint.connections == 1, "it")
    assert len(one.notified) == 1


async def test_the_plugins_own_order_decides_the_version(bench: Bench) -> None:
    await bench.add("one", ("v1.DRAResourceHealth", "v1beta1.DRAPlugin", "v1.DRAPlugin"))
    assert bench.plugins.of("d")[0].service == names.SERVICE_V1BETA1


@pytest.mark.parametrize(
    ("versions", "kind", "text"),
    [
        ((), names.PLUGIN_TYPE, "empty list"),
        (("v9.DRAPlugin",), names.PLUGIN_TYPE, "none of services"),
        (("v1.DRAPlugin",), "CSIPlugin", "no handler registered"),
    ],
)
async def test_refusals_are_told_to_the_plugin(
    bench: Bench, versions: tuple[str, ...], kind: str, text: str
) -> None:
    bad = bench.make("bad", versions, kind=kind)
    await bad.start(bench.root / "r" / "bad.sock")
    await until(lambda: bad.notified, "a word")
    registered, error = bad.notified[0]
    assert not registered
    assert text in error
    assert bench.plugins.of("d") == []


async def test_the_same_endpoint_twice_is_refused(bench: Bench) -> None:
    one = await bench.add("one")
    two = bench.make("two", endpoint=one.info.endpoint)
    await two.start(bench.root / "r" / "two.sock", endpoint=False)
    await until(lambda: two.notified, "a word")
    assert "already registered for DRA driver plugin d" in two.notified[0][1]


async def test_an_endpoint_that_is_missing_registers_all_the_same(bench: Bench) -> None:
    one = bench.make("one")
    await one.start(bench.root / "r" / "one.sock", endpoint=False)
    await until(lambda: one.notified, "a word")
    assert one.notified[0] == (True, "")
    assert not bench.plugins.of("d")[0].connected


async def test_a_plugin_that_does_not_take_its_notice_is_removed_and_tried_again(
    bench: Bench,
) -> None:
    one = bench.make("one")
    one.refuse_notify = 1
    await one.start(bench.root / "r" / "one.sock")
    await until(lambda: bench.said, "the first try to fail")
    assert bench.plugins.of("d") == []
    await until(lambda: bench.picked() == "one", "the second try")
    assert one.notified == [(True, ""), (True, "")]


async def test_an_answer_that_is_no_info_is_a_failed_registration(bench: Bench) -> None:
    async def rubbish(request: Request) -> Answer:
        return Answer(body=b"\xff\xff")

    server = Server(unary=lambda _: rubbish, stream=no_stream)
    await server.start(str(bench.root / "r" / "bad.sock"))
    await until(lambda: bench.said, "a word")
    assert "not a PluginInfo" in bench.said[0]
    await server.close()


async def test_a_socket_made_anew_is_registered_anew(bench: Bench) -> None:
    one = await bench.add("one")
    first = bench.plugins.of("d")[0]
    assert one.registration is not None
    await one.registration.close()
    again = Server(unary=one._method, stream=no_stream)
    await again.start(str(bench.root / "r" / "one-reg.sock"))
    await until(lambda: len(one.notified) == 2, "a second word")
    await until(lambda: bench.plugins.of("d")[0] is not first, "a new plugin")
    await again.close()


async def test_a_dead_socket_is_tried_again_with_growing_pauses(bench: Bench) -> None:
    server = Server(unary=lambda _: None, stream=no_stream)
    await server.start(str(bench.root / "r" / "dead.sock"))
    server.stop_listening()
    server.abort_connections()
    await until(lambda: len(bench.said) >= 3, "three tries")
    assert all("dial failed at socket" in text for text in bench.said)
    await server.close()


async def test_slices_are_wiped_only_after_a_while_without_a_connection(bench: Bench) -> None:
    one = await bench.add("one")
    await until(lambda: bench.plugins.of("d")[0].connected, "connected")
    assert one.endpoint is not None
    one.endpoint.stop_listening()
    one.endpoint.abort_connections()
    await until(lambda: bench.plugins.wiped == ["d"], "the wipe")
