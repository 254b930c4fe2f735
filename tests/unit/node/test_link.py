from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from agent import names
from agent.core.renewal import Periods
from agent.node.choice import Choice
from agent.node.generation import Behaviour, Generation, Sockets
from agent.node.hooks import Hooks
from agent.node.info import make_info, parse_info
from agent.node.instance import Instance, State
from agent.node.link import Link
from agent.node.watch import Found, Identity
from agent.rpc.call import Answer, Request
from agent.rpc.channel import Channel
from tests.support.waiting import until

GPU = "gpu.example.com"
FAST = Periods(renew_delay=0.05, renew_again=(), retire_after=0.05, hold=0.05, answer_grace=0.05)


@pytest.fixture
def root() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield made


def refuse(path: str) -> None:
    """As os.unlink where nothing can be written."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class Bench:
    def __init__(self, root: str) -> None:
        self.root = root
        self.said: list[tuple[str, object]] = []
        self.idle: list[Link] = []
        self.broken = False
        self.go = asyncio.Event()
        self.link = Link(
            GPU,
            periods=FAST,
            make=self.make,
            hooks=Hooks(
                on_trigger=lambda driver, reason: self.said.append(("trigger", reason)),
                on_generation=lambda driver, reason: self.said.append(("generation", reason)),
                on_driver=lambda driver, up: self.said.append(("driver", up)),
                on_registered=lambda driver, there: self.said.append(("registered", there)),
                on_ready=lambda driver, reason: self.said.append(("ready", reason)),
            ),
            on_idle=self.idle.append,
        )
        self.link.start()

    def make(self, link: Link) -> Generation:
        name = f"{len(self.said):06x}"
        endpoint = "x" * 200 if self.broken else f"e{name}"
        return Generation(
            Sockets(
                driver=link.name,
                name=name,
                registration=os.path.join(self.root, f"r{name}"),
                endpoint=os.path.join(self.root, endpoint),
                info=b"",
            ),
            Behaviour(
                unary=lambda method: self.call,
                stream=lambda stream: stream.end(),
                get_info_delay=0,
                notify=None,
                on_notify=link.on_notify,
                on_connect=link.on_connect,
            ),
        )

    async def call(self, request: Request) -> Answer:
        await self.go.wait()
        return Answer(request.body)

    def instance(
        self, appeared: int, *, at_start: bool = False, version: str = "v1.DRAPlugin"
    ) -> Instance:
        one = Instance(
            Found(os.path.join(self.root, f"driver{appeared}"), Identity(1, appeared, 1)),
            appeared=appeared,
            at_start=at_start,
            choice=Choice(),
            reconnect=1,
            on_state=lambda instance: None,
        )
        one.info = parse_info(make_info(name=GPU, endpoint="", versions=(version,)))
        one.channel = Channel(one.path)
        return one


@pytest.fixture
async def bench(root: str) -> AsyncIterator[Bench]:
    bench = Bench(root)
    yield bench
    await bench.link.close()


async def test_nothing_is_published_before_an_instance_is_connected(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    link.add(one)
    await asyncio.sleep(0.02)
    assert not link.generations
    assert bench.link.describe()["awayFor"] is not None
    assert link.pick(names.SERVICE_V1) is None
    one.state = State.CONNECTED
    link.changed()
    assert link.away_since is None
    await until(lambda: link.generations)
    assert one.settled
    assert ("generation", "start") in bench.said
    assert ("driver", True) in bench.said
    assert not [what for what, _ in bench.said if what == "trigger"]


async def test_pick_takes_the_newest_connected_that_lists_the_service(bench: Bench) -> None:
    link = bench.link
    old = bench.instance(1, version="v1beta1.DRAPlugin")
    new = bench.instance(2)
    for one in (new, old):
        one.state = State.CONNECTED
        link.add(one)
    assert link.pick(names.SERVICE_V1) is new.channel
    assert link.pick(names.SERVICE_V1BETA1) is old.channel
    assert link.pick("v1.DRAResourceHealth") is new.channel
    assert link.newest is new
    new.state = State.DOWN
    assert link.pick(names.SERVICE_V1) is None
    assert link.newest is old


async def test_wait_connected_outlasts_one_that_is_gone_again_at_once(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1)
    link.add(one)
    waiting = asyncio.get_running_loop().create_task(link.wait_connected(10))
    await asyncio.sleep(0)
    for state in (State.CONNECTED, State.DOWN):
        one.state = state
        link.changed()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    one.state = State.CONNECTED
    link.changed()
    assert await waiting


async def test_wait_connected(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1)
    assert not await link.wait_connected(0.01)
    link.add(one)
    waiting = asyncio.get_running_loop().create_task(link.wait_connected(10))
    one.state = State.CONNECTED
    link.changed()
    assert await waiting


async def test_away_is_when_all_instances_are_down(bench: Bench) -> None:
    link, one, two = bench.link, bench.instance(1), bench.instance(2)
    for each in (one, two):
        each.state = State.CONNECTED
        link.add(each)
    one.state = State.DOWN
    link.changed()
    assert link.away_since is None
    two.state = State.CONNECTING
    link.changed()
    assert link.away_since is None
    two.state = State.DOWN
    link.changed()
    assert link.away_since is not None


async def test_the_last_that_leaves_ends_the_link_after_the_hold(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    bench.idle.clear()  # it had nothing to do before
    link.remove(one)
    link.remove(one)
    await until(lambda: bench.idle)
    assert os.listdir(bench.root) == []
    assert link.endpoints == []


async def test_a_renewal_is_told_and_replaces_the_older_generation(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    (first,) = link.generations
    link.renew("bypass")
    assert bench.said[-1] == ("trigger", "bypass")
    await until(lambda: len(link.generations) == 2)
    second = list(link.generations)[1]
    assert len(link.endpoints) == 2
    channels = []
    for name in (first, second):
        channel = Channel(link.generations[name].sockets.endpoint)
        await channel.connect()
        channels.append(channel)
        link.on_notify(name, True)
    assert link.registered
    await until(lambda: list(link.generations) == [second])
    await until(lambda: not channels[0].connected)
    assert channels[1].connected
    assert ("registered", True) in bench.said
    assert bench.said.count(("ready", "start")) + bench.said.count(("ready", "bypass")) == 1
    await channels[1].close()


async def test_a_second_notify_is_a_trigger(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    (first,) = link.generations
    link.on_notify(first, True)
    assert ("trigger", "kubelet-restart") not in bench.said
    link.on_notify(first, True)
    assert ("trigger", "kubelet-restart") in bench.said


async def test_a_generation_that_cannot_be_made_is_said_and_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    bench.broken = True
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: "cannot register with kubelet" in caplog.text)
    assert not link.generations
    assert link.renewal.due
    assert link.describe()["renewalsIn"][0] > 0


async def test_generations_whose_sockets_were_removed_make_place(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    for count in (1, 2, 3):
        await until(lambda count=count: len(link.generations) == count)  # type: ignore[misc]
        if count < 3:
            link.renew("bypass")
    first = dict(link.generations)
    for each in first.values():
        link.on_notify(each.name, True)
    link.look()
    assert [link.registered] == [True]  # in a list: mypy takes it for settled otherwise
    assert not link.renewal.due
    for each in first.values():
        os.unlink(each.sockets.registration)
    link.look()
    assert [link.registered] == [False]
    await until(lambda: link.generations and not set(first) & set(link.generations))


async def test_an_older_one_whose_socket_was_removed_is_no_reason_to_renew(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    (old,) = link.generations.values()
    link.renew("bypass")
    await until(lambda: len(link.generations) == 2)
    os.unlink(old.sockets.registration)
    link.look()
    assert not link.renewal.due
    await until(lambda: len(link.generations) == 1)


async def test_a_socket_that_cannot_be_removed_ends_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    (old,) = link.generations.values()
    link.renew("bypass")
    await until(lambda: len(link.generations) == 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        os.rename(old.sockets.registration, f"{old.sockets.registration}.away")
        link.look()
        await until(lambda: len(link.generations) == 1)
    assert "cannot be removed: Read-only file system" in caplog.text
    link.renew("bypass")
    await until(lambda: len(link.generations) == 2)


async def test_a_drain_that_fails_does_not_end_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    link.renew("bypass")
    await until(lambda: len(link.generations) == 2)
    old, new = link.generations.values()

    async def fail(until: float) -> None:
        raise OSError(errno.EROFS, "planted")

    monkeypatch.setattr(old, "drain", fail)
    await link.drain(9)
    assert new.stopped
    assert "planted" in caplog.text
    await old.close()


async def test_a_call_in_flight_is_answered_before_the_drain_ends(bench: Bench) -> None:
    link, one = bench.link, bench.instance(1, at_start=True)
    one.state = State.CONNECTED
    link.add(one)
    await until(lambda: link.generations)
    channel = Channel(link.endpoints[0])
    await channel.connect()
    loop = asyncio.get_running_loop()
    call = loop.create_task(channel.unary("/a.B/C", b"x", timeout=10))
    await until(lambda: link.describe()["generations"][0]["inFlight"])
    drain = loop.create_task(link.drain(9))
    await asyncio.sleep(0)
    bench.go.set()
    assert (await call).body == b"x"
    await drain
    assert os.listdir(bench.root) == []
