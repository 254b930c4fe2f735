from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from agent import names
from agent.core.model import Status
from agent.node.choice import Choice
from agent.node.instance import Instance, State
from agent.node.watch import Found, Identity
from tests.support.node_standins import Driver
from tests.support.waiting import until

GPU = "gpu.example.com"


@pytest.fixture
def root() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield made


@pytest.fixture
async def driver(root: str) -> AsyncIterator[Driver]:
    made = Driver(root, GPU)
    yield made
    await made.stop()


@pytest.fixture
async def instance(driver: Driver) -> AsyncIterator[tuple[Instance, list[State]]]:
    states: list[State] = []
    made = Instance(
        Found(driver.registration_path, Identity(1, 1, 1)),
        appeared=1,
        at_start=True,
        choice=Choice(),
        reconnect=0.02,
        on_state=lambda one: states.append(one.state),
    )
    yield made, states
    await made.close()


Made = tuple[Instance, list[State]]


async def test_it_asks_and_connects(driver: Driver, instance: Made) -> None:
    one, states = instance
    await driver.start()
    one.start()
    await until(lambda: one.connected)
    assert states == [State.CONNECTING, State.CONNECTED]
    assert one.info is not None
    assert one.info.versions == driver.versions
    assert one.endpoint == driver.endpoint_path
    assert one.at_start
    assert one.describe()["state"] == "connected"


async def test_an_empty_endpoint_is_the_registration_socket(root: str, instance: Made) -> None:
    one, _ = instance
    common = Driver(root, GPU, common=True)
    await common.start()
    one.start()
    await until(lambda: one.connected)
    assert one.endpoint == common.registration_path
    await common.stop()


async def test_it_goes_on_asking_a_socket_without_a_listener(
    driver: Driver, instance: Made
) -> None:
    one, states = instance
    await driver.start()
    await driver.kill()
    one.start()
    await until(lambda: one.last_error)
    assert one.state is State.UNKNOWN
    assert not one.at_start
    await driver.start()
    one.poke()
    await until(lambda: one.connected)
    assert states == [State.CONNECTING, State.CONNECTED]


async def test_a_lost_connection_is_tried_at_once_and_then_again_and_again(
    driver: Driver, instance: Made
) -> None:
    one, states = instance
    await driver.start()
    one.start()
    await until(lambda: one.connected)
    await driver.kill()
    await until(lambda: one.state is State.DOWN)
    assert "no answer" not in one.last_error
    await driver.start()
    await until(lambda: one.connected)
    assert states == [
        State.CONNECTING,
        State.CONNECTED,
        State.CONNECTING,
        State.DOWN,
        State.CONNECTED,
    ]


async def test_one_that_accepts_and_does_not_answer_is_not_down(
    driver: Driver, instance: Made
) -> None:
    one, states = instance
    await driver.start()
    await driver._servers[0].close()
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(driver.endpoint_path)
        hung.listen()
        one.start()
        await until(lambda: one.connected)
        assert State.DOWN not in states


async def test_one_that_is_not_served_is_left_alone(driver: Driver, instance: Made) -> None:
    one, states = instance
    driver.name = "not a name"
    await driver.start()
    one.start()
    await until(lambda: states == [State.IGNORED])
    assert one.channel is None
    assert "is not a driver name" in one.last_error


async def test_the_registration_socket_can_be_called(driver: Driver, instance: Made) -> None:
    one, _ = instance
    driver.notify_status = Status(13, "no")
    await driver.start()
    answer = await one.registration(names.REGISTRATION_NOTIFY, b"\x08\x01", 5)
    assert answer.status is not None
    assert answer.status.message == "no"
    assert driver.notified == [(True, "")]


async def test_one_that_leaves_lets_its_calls_end(driver: Driver, instance: Made) -> None:
    one, states = instance
    await driver.start()
    one.start()
    await until(lambda: one.connected)
    driver.hold = asyncio.Event()
    assert one.channel is not None
    call = asyncio.get_running_loop().create_task(one.channel.unary("/a.B/C", b"x", timeout=10))
    await until(lambda: driver.calls)
    os.unlink(driver.registration_path)
    await one.leave()
    driver.hold.set()
    assert (await call).body == b"driver:x"
    await driver.kill()
    await until(lambda: one.channel is not None and not one.channel.connected)
    assert states == [State.CONNECTING, State.CONNECTED]
    await until(lambda: one.ended)


async def test_an_endpoint_that_becomes_a_link_to_ours_is_not_connected(
    root: str, driver: Driver, instance: Made
) -> None:
    one, _ = instance
    await driver.start()
    one.start()
    await until(lambda: one.connected)
    own = os.path.join(root, "dra-agent.io", "x.sock")
    os.mkdir(os.path.dirname(own))
    os.rename(driver.endpoint_path, own)  # it listens, as ours would
    os.symlink(own, driver.endpoint_path)
    assert one.channel is not None
    await one.channel.close()
    await until(lambda: one.state is State.DOWN)
    assert "the agent's own" in one.last_error


async def test_only_the_same_answer_makes_it_the_same_instance(
    driver: Driver, instance: Made
) -> None:
    one, _ = instance
    await driver.start()
    assert not await one.says_the_same(Identity(1, 1, 2)), "it was not asked yet"
    one.start()
    await until(lambda: one.connected)
    assert not await one.says_the_same(Identity(1, 1, 1)), "nothing is new"
    assert not await one.says_the_same(Identity(1, 2, 2)), "another file"
    assert await one.says_the_same(Identity(1, 1, 2))
    assert one.identity == Identity(1, 1, 2)
    one.settled = True
    assert not await one.says_the_same(Identity(1, 1, 3))
    one.settled = False
    driver.versions = ("v1.DRAPlugin",)
    assert not await one.says_the_same(Identity(1, 1, 3))
    await driver.stop()
    assert not await one.says_the_same(Identity(1, 1, 3))
    assert one.identity == Identity(1, 1, 2)
