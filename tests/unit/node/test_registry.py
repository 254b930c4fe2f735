"""Registration over real sockets: a small driver, a small kubelet, the agent between them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import names
from agent.core import paths
from agent.core.model import Status
from agent.errors import TransportError, UserError
from agent.node import watch
from agent.node.hooks import Hooks
from agent.node.registry import Registry
from agent.rpc.call import UNIMPLEMENTED
from agent.rpc.channel import Channel
from agent.settings.model import (
    AgentConfig,
    Drivers,
    Duration,
    NodeIdentity,
    Overlay,
    Registration,
)
from tests.support.node_standins import PREPARE_V1, Driver, Kubelet, Relay
from tests.support.waiting import until

GPU = "gpu.example.com"
NIC = "nic.example.com"


def config(
    *,
    kind: str = "overlay",
    deny: list[str] | None = None,
    retire_after: float = 0.3,
    hold: float = 0.3,
    again: tuple[float, ...] = (0.5,),
    rescan: float = 5,
) -> AgentConfig:
    return AgentConfig(
        registration=Registration(
            kind="intake" if kind == "intake" else "overlay",
            overlay=Overlay(
                get_info_delay=Duration(0.1),
                renew_delay=Duration(0.15),
                renew_again=[Duration(t) for t in again],
                retire_after=Duration(retire_after),
            ),
        ),
        drivers=Drivers(
            deny=deny or [],
            rescan=Duration(rescan),
            driver_absence_hold=Duration(hold),
            reconnect=Duration(0.02),
        ),
    )


class Agent:
    """A registry that runs, with the plainest proxy."""

    def __init__(self, root: str, settings: AgentConfig | None = None, **identity: str) -> None:
        self.settings = settings or config()
        self.relay = Relay(hold=self.settings.drivers.driver_absence_hold)
        self.triggers: list[tuple[str, str]] = []
        self.gone: list[str] = []
        self.registry = Registry(
            settings=self.settings,
            identity=NodeIdentity(node_name="node-a", kubelet_root=root, **identity),
            handlers=self.relay,
            on_trigger=lambda driver, reason: self.triggers.append((driver, reason)),
            hooks=Hooks(on_gone=self.gone.append),
        )
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Agent:
        self.task = asyncio.get_running_loop().create_task(self.registry.run())
        await until(lambda: self.registry.watching or (self.task and self.task.done()))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def generations(self, driver: str = GPU) -> list[str]:
        link = self.registry.links.get(driver)
        return [] if link is None else list(link.generations)


@pytest.fixture
def root() -> Iterator[str]:
    # pytest's own directories are too long for a socket's path.
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        (Path(made) / "plugins_registry").mkdir()
        yield made


@pytest.fixture
async def kubelet(root: str) -> AsyncIterator[Kubelet]:
    made = Kubelet(root)
    made.start()
    yield made
    await made.stop()


Make = Callable[..., Driver]


@pytest.fixture
async def make(root: str) -> AsyncIterator[Make]:
    """Makes drivers that are stopped at the end, whatever happens (else the loop's end hangs)."""
    made: list[Driver] = []

    def one(name: str = GPU, **more: Any) -> Driver:
        made.append(Driver(root, name, **more))
        return made[-1]

    yield one
    for driver in made:
        await driver.stop()


@pytest.fixture
async def driver(make: Make) -> Driver:
    one = make()
    await one.start()
    return one


def sockets(root: str) -> set[str]:
    places = (paths.registry_dir(root), paths.endpoint_dir(root))
    return {os.path.join(place, name) for place in places for name in os.listdir(place)}


async def settled(kubelet: Kubelet, agent: Agent) -> None:
    """The agent is the newest, and no renewal is to come."""
    link = agent.registry.links
    await until(lambda: kubelet.through_agent(GPU) and GPU in link and not link[GPU].renewal.due)


async def test_the_agent_registers_after_the_driver_and_calls_pass_through_it(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    await until(lambda: kubelet.of(GPU))
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        answer = await kubelet.call(GPU, b"claim")
        assert answer.body == b"driver:claim"
        assert agent.relay.passed == [PREPARE_V1]
        assert [p.ours for p in kubelet.of(GPU)] == [False, True]
        assert kubelet.of(GPU)[1].versions == ("v1.DRAPlugin", "v1beta1.DRAPlugin")
        assert agent.triggers == []
        await until(lambda: agent.registry.links[GPU].registered)
        assert agent.registry.describe()["links"][0]["generations"][0]["connected"]
        assert os.stat(kubelet.of(GPU)[1].path).st_mode & 0o777 == 0o600


async def test_a_driver_that_comes_later_is_found(root: str, kubelet: Kubelet, make: Make) -> None:
    async with Agent(root) as agent:
        assert agent.registry.links == {}
        late = make(common=True)
        await late.start()
        await settled(kubelet, agent)
        assert (await kubelet.call(GPU)).body == b"driver:x"
        assert agent.relay.passed == [PREPARE_V1]


async def test_kubelet_goes_on_with_the_driver_when_the_agent_is_gone(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
    await until(lambda: not kubelet.through_agent(GPU))
    assert (await kubelet.call(GPU)).body == b"driver:x"
    assert agent.relay.passed == []
    assert not [n for n in os.listdir(kubelet.registry) if paths.is_ours(n)]


async def test_a_driver_restart_is_a_renewal(root: str, kubelet: Kubelet, driver: Driver) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        first = agent.generations()
        await driver.stop()
        await driver.start()
        await until(lambda: agent.generations() and agent.generations()[-1] not in first)
        await settled(kubelet, agent)
        assert (GPU, "driver-registered") in agent.triggers
        await kubelet.call(GPU)
        assert agent.relay.passed
        # The older ones are retired, and only the newest stays.
        await until(lambda: len(agent.generations()) == 1)
        assert agent.generations()[0] not in first
        assert kubelet.through_agent(GPU)
        await until(lambda: len(kubelet.of(GPU)) == 2)


async def test_a_second_notify_is_a_renewal_the_first_is_none(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root, config(again=())) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        await until(lambda: agent.registry.links[GPU].registered)
        assert agent.triggers == []
        first = agent.generations()
        await kubelet.restart()
        await until(lambda: agent.triggers == [(GPU, "kubelet-restart")])
        await until(lambda: agent.generations()[-1] not in first)
        await settled(kubelet, agent)
        await kubelet.call(GPU)
        assert agent.relay.passed == [PREPARE_V1]
        # Its own renewal's first Notify triggers nothing.
        assert agent.triggers == [(GPU, "kubelet-restart")]


@pytest.mark.parametrize("kind", ["overlay", "intake"])
async def test_a_registration_socket_that_somebody_removed_is_made_again(
    root: str, kubelet: Kubelet, kind: str
) -> None:
    settings = config(kind=kind, rescan=0.1)
    registry = paths.registry_dir(root) if kind == "overlay" else paths.intake_dir(root)
    os.makedirs(registry, exist_ok=True)
    made = Driver(root, GPU, registry=registry)
    await made.start()
    async with Agent(root, settings) as agent:
        await until(lambda: agent.registry.links and agent.registry.links[GPU].registered)
        (old,) = agent.registry.links[GPU].generations.values()
        os.unlink(old.sockets.registration)
        await until(lambda: agent.generations() and old.name not in agent.generations())
        await until(lambda: agent.registry.links[GPU].registered)
        (new,) = agent.registry.links[GPU].generations.values()
        assert not new.removed
        assert "socket-removed" not in [reason for _, reason in agent.triggers], "verdicts stay"
    await made.stop()


async def test_all_of_three_registration_sockets_are_made_again(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root, config(retire_after=60, again=(), rescan=0.1)) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        for count in (2, 3):
            agent.registry.renew(GPU, "bypass")
            await until(lambda count=count: len(agent.generations()) == count)  # type: ignore[misc]
            await settled(kubelet, agent)
        await until(lambda: len(kubelet.of(GPU)) == 4)
        lost = agent.generations()
        for one in agent.registry.links[GPU].generations.values():
            os.unlink(one.sockets.registration)
        await until(lambda: agent.generations() and not set(lost) & set(agent.generations()))
        await until(lambda: kubelet.through_agent(GPU))


def one_inode(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ext4, which gives the inode of a removed file to the next one; others do not always."""

    def identity_of(path: str) -> watch.Identity | None:
        found = real(path)
        return found and found._replace(inode=1)

    real = watch.identity_of
    monkeypatch.setattr(watch, "identity_of", identity_of)


async def test_a_driver_with_the_inode_of_the_one_that_was_refused_is_asked(
    root: str, kubelet: Kubelet, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_inode(monkeypatch)
    refused = make(versions=("1.0.0",))
    await refused.start()
    async with Agent(root) as agent:
        await until(
            lambda: [o["state"] for o in agent.registry.describe()["others"]] == ["ignored"]
        )
        await refused.kill()
        await make().start()
        await until(lambda: kubelet.through_agent(GPU))


async def test_a_driver_whose_endpoint_moved_before_it_was_published_is_asked(
    root: str, kubelet: Kubelet, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_inode(monkeypatch)
    async with Agent(root) as agent:
        first = make(tag="first")
        await first.start()
        await until(lambda: GPU in agent.registry.links)
        link = agent.registry.links[GPU]
        await until(lambda: link.instances and link.instances[0].connected)
        assert not agent.generations()
        await first.kill()
        await make(tag="second").start()
        await settled(kubelet, agent)
        assert (await kubelet.call(GPU)).body == b"second:x"


async def test_a_chmod_before_the_publication_makes_no_other_instance(
    root: str, kubelet: Kubelet, make: Make
) -> None:
    async with Agent(root, config(rescan=0.05, again=())) as agent:
        one = make()
        await one.start()
        await until(lambda: GPU in agent.registry.links)
        link = agent.registry.links[GPU]
        instance = link.instances[0]
        os.chmod(one.registration_path, 0o660)
        noted = watch.identity_of(one.registration_path)
        await until(lambda: instance.identity == noted)
        await settled(kubelet, agent)
        assert link.instances == [instance]
        assert {reason for _, reason in agent.triggers} == {"driver-registered"}
        # It is quiet from now on.
        quiet = list(agent.triggers)
        await asyncio.sleep(0.2)
        assert agent.triggers == quiet


async def test_evidence_of_a_bypass_is_a_renewal(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        first = agent.generations()
        agent.registry.renew("other.example.com", "bypass")
        agent.registry.renew(GPU, "bypass")
        await until(lambda: agent.generations()[-1] not in first)
        assert agent.triggers == [(GPU, "bypass")]


async def test_a_killed_driver_is_held_withdrawn_and_taken_back(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        link = agent.registry.links[GPU]
        await driver.kill()
        await until(lambda: link.away_since is not None)
        held = await kubelet.call(GPU)
        assert held.status is not None
        assert held.status.message == "driver away"
        await until(lambda: link.renewal.withdrawn)
        await until(lambda: not kubelet.through_agent(GPU))
        # The driver's registration socket exists, so ours does and answers.
        ours = [p for p in kubelet.of(GPU) if p.ours]
        assert len(ours) == 1
        probe = Channel(ours[0].path)
        await probe.connect()
        info = await probe.unary(names.REGISTRATION_GET_INFO, b"", timeout=1)
        await probe.close()
        assert info.body is not None
        endpoint = Channel(ours[0].endpoint)
        with pytest.raises(TransportError):
            await endpoint.connect()
        withdrawn = agent.generations()
        await driver.start()
        await until(lambda: kubelet.through_agent(GPU))
        assert agent.registry.links[GPU].away_since is None
        assert (await kubelet.call(GPU)).body == b"driver:x"
        await until(lambda: not set(agent.generations()) & set(withdrawn))


async def test_a_driver_that_is_back_within_the_hold_answers_the_held_call(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root, config(hold=8)) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        link = agent.registry.links[GPU]
        await driver.kill()
        await until(lambda: link.away_since is not None)
        call = asyncio.get_running_loop().create_task(kubelet.call(GPU))
        await until(lambda: agent.relay.passed)
        await driver.start()
        assert (await call).body == b"driver:x"


async def test_a_driver_that_left_in_order_is_forgotten_after_the_hold(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        await driver.stop()
        await until(lambda: not kubelet.of(GPU))
        await until(lambda: GPU not in agent.registry.links)
        assert agent.gone == [GPU]
        with pytest.raises(LookupError):
            await kubelet.call(GPU)
        assert os.listdir(paths.registry_dir(root)) == []
        assert not [n for n in os.listdir(paths.endpoint_dir(root)) if n.endswith(".sock")]
        await driver.start()
        await until(lambda: kubelet.through_agent(GPU))


async def test_two_instances_the_newest_is_called_and_one_that_leaves_changes_nothing(
    root: str, kubelet: Kubelet, driver: Driver, make: Make
) -> None:
    async with Agent(root, config(retire_after=20)) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        second = make(tag="second", socket=f"{GPU}-uid2-reg.sock")
        await second.start()
        await until(lambda: len(agent.generations()) == 3)
        await settled(kubelet, agent)
        assert (await kubelet.call(GPU)).body == b"second:x"
        before = agent.generations()
        triggers = list(agent.triggers)
        await second.stop()
        await until(lambda: len(agent.registry.links[GPU].instances) == 1)
        assert (await kubelet.call(GPU)).body == b"driver:x"
        assert agent.generations() == before
        assert agent.triggers == triggers
        assert agent.registry.links[GPU].away_since is None


async def test_two_drivers_each_have_their_own_link(
    root: str, kubelet: Kubelet, driver: Driver, make: Make
) -> None:
    other = make(NIC, tag="nic")
    await other.start()
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU) and kubelet.through_agent(NIC))
        assert (await kubelet.call(NIC)).body == b"nic:x"
        assert (await kubelet.call(GPU)).body == b"driver:x"
        await other.kill()
        await until(lambda: agent.registry.links[NIC].away_since is not None)
        assert agent.registry.links[GPU].away_since is None


async def test_denied_drivers_are_left_alone(
    root: str, kubelet: Kubelet, driver: Driver, make: Make
) -> None:
    other = make(NIC, tag="nic")
    await other.start()
    async with Agent(root, config(deny=["gpu.*"])) as agent:
        await until(lambda: kubelet.through_agent(NIC))
        assert list(agent.registry.links) == [NIC]
        assert "excluded" in agent.registry.describe()["others"][0]["lastError"]


async def test_stale_sockets_of_an_earlier_agent_are_removed(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    os.makedirs(paths.endpoint_dir(root))
    stale = [
        paths.registration_path(root, GPU, "00ff00"),
        paths.endpoint_path(root, GPU, "00ff00"),
        paths.registration_path(root, "gone.example.com", "00ff01"),
    ]
    for path in stale:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path)
    async with Agent(root):
        assert not set(stale) & sockets(root)
        await until(lambda: kubelet.through_agent(GPU))


async def test_a_second_agent_is_refused_and_the_holder_named(root: str, driver: Driver) -> None:
    async with Agent(root, pod_name="agent-x", pod_namespace="dra") as first:
        await until(first.generations)
        with pytest.raises(UserError, match=rf"pid {os.getpid()}, pod dra/agent-x"):
            await Agent(root).registry.run()
        with pytest.raises(UserError, match=f"serves driver {GPU} already"):
            await Agent(root, only_driver=GPU).registry.run()
        assert paths.registration_path(root, GPU, first.generations()[0]) in sockets(root)


async def test_a_sidecar_serves_its_driver_and_the_node_agent_the_others(
    root: str, kubelet: Kubelet, driver: Driver, make: Make
) -> None:
    other = make(NIC, tag="nic")
    await other.start()
    async with Agent(root, only_driver=NIC) as sidecar:
        await until(lambda: kubelet.through_agent(NIC))
        assert list(sidecar.registry.links) == [NIC]
        async with Agent(root) as agent:
            await until(lambda: kubelet.through_agent(GPU))
            assert list(agent.registry.links) == [GPU]
            blocked = agent.registry.describe()["others"][0]["blockedBy"]
            assert blocked == f"pid {os.getpid()}"
            assert kubelet.through_agent(NIC)


async def test_open_refuses_before_anything_runs(root: str) -> None:
    first, second = Agent(root), Agent(root)
    first.registry.open()
    with pytest.raises(UserError, match="another agent"):
        second.registry.open()
    async with first:
        assert first.registry.watching
    second.registry.open()
    async with second:
        assert second.registry.watching


async def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="plugins_registry"):
        await Agent(str(tmp_path)).registry.run()


async def test_drain_lets_a_call_end_and_gives_kubelet_back_to_the_driver(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        driver.hold = asyncio.Event()
        loop = asyncio.get_running_loop()
        call = loop.create_task(kubelet.call(GPU))
        await until(lambda: driver.calls)
        drain = loop.create_task(agent.registry.drain())
        await asyncio.sleep(0)
        assert agent.generations()
        driver.hold.set()
        assert (await call).body == b"driver:x"
        await drain
        assert agent.task is not None
        await agent.task
    assert (await kubelet.call(GPU)).body == b"driver:x"
    assert agent.relay.passed == [PREPARE_V1]


async def test_a_drain_that_fails_leaves_the_other_drivers_their_time(
    root: str, kubelet: Kubelet, driver: Driver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(NIC, tag="nic")
    await other.start()
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU) and kubelet.through_agent(NIC))

        async def fail(limit: float) -> None:
            raise OSError(errno.EROFS, "planted")

        monkeypatch.setattr(agent.registry.links[GPU], "drain", fail)
        other.hold = asyncio.Event()
        call = asyncio.get_running_loop().create_task(kubelet.call(NIC))
        await until(lambda: other.calls)
        drain = asyncio.get_running_loop().create_task(agent.registry.drain())
        await asyncio.sleep(0.05)
        assert not drain.done()
        other.hold.set()
        assert (await call).body == b"nic:x"
        await drain


async def test_drain_does_not_wait_for_ever(root: str, kubelet: Kubelet, driver: Driver) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        driver.hold = asyncio.Event()
        call = asyncio.get_running_loop().create_task(kubelet.call(GPU))
        await until(lambda: driver.calls)
        await agent.registry.drain(limit=0.1)
        with pytest.raises(TransportError):
            await call


async def test_health_streams_are_held_silent_and_other_methods_relayed(
    root: str, kubelet: Kubelet, driver: Driver
) -> None:
    async with Agent(root) as agent:
        await until(lambda: kubelet.through_agent(GPU))
        plugin = kubelet.newest(GPU)
        assert plugin is not None
        with pytest.raises(TransportError, match="no answer within"):
            await plugin.channel.unary(names.HEALTH_METHODS[1], b"", timeout=0.3)
        assert driver.calls == []
        answer = await plugin.channel.unary("/new.v9.Service/Method", b"y", timeout=5)
        assert answer.body == b"driver:y"
        assert driver.calls == ["/new.v9.Service/Method"]
        assert agent.relay.passed == ["/new.v9.Service/Method"]


class TestIntake:
    async def test_the_driver_is_registered_by_the_agent_alone(
        self, root: str, kubelet: Kubelet, make: Make
    ) -> None:
        intake = paths.intake_dir(root)
        os.makedirs(intake)
        driver = make(registry=intake)
        await driver.start()
        async with Agent(root, config(kind="intake")) as agent:
            await until(lambda: kubelet.through_agent(GPU))
            plugin = kubelet.newest(GPU)
            assert plugin is not None
            assert plugin.versions == driver.versions
            await until(lambda: driver.notified == [(True, "")])
            assert (await kubelet.call(GPU)).body == b"driver:x"
            health = await plugin.channel.unary(names.HEALTH_METHODS[0], b"", timeout=5)
            assert health.body == b"driver:"
            await kubelet.restart()
            await until(lambda: len(driver.notified) == 2)
            assert agent.triggers == []

    async def test_the_drivers_answer_to_notify_is_kubelets(
        self, root: str, kubelet: Kubelet, make: Make
    ) -> None:
        intake = os.path.join(root, "in")
        settings = config(kind="intake")
        driver = make(registry=intake, notify_status=Status(UNIMPLEMENTED, "no"))
        settings = AgentConfig(
            registration=Registration(kind="intake", intake_dir=intake), drivers=settings.drivers
        )
        async with Agent(root, settings) as agent:
            await driver.start()
            await until(lambda: driver.notified)
            assert agent.registry.directory == intake
            link = agent.registry.links[GPU]
            await until(lambda: link.endpoints)
            probe = Channel(next(iter(link.generations.values())).sockets.registration)
            await probe.connect()
            answer = await probe.unary(names.REGISTRATION_NOTIFY, b"\x08\x01", timeout=5)
            await probe.close()
            assert answer.status is not None
            assert (answer.status.code, answer.status.message) == (UNIMPLEMENTED, "no")

    async def test_a_restarted_driver_is_registered_anew(
        self, root: str, kubelet: Kubelet, make: Make
    ) -> None:
        driver = make(registry=paths.intake_dir(root))
        async with Agent(root, config(kind="intake")) as agent:
            await driver.start()
            await until(lambda: driver.notified)
            first = agent.generations()
            await driver.stop()
            await driver.start()
            await until(lambda: len(driver.notified) == 2)
            await until(lambda: len(agent.generations()) == 1)
            assert agent.generations() != first
            assert (await kubelet.call(GPU)).body == b"driver:x"
