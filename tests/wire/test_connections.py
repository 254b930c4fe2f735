"""Connections that come and go: idle kubelets, drivers that leave gracefully, pings, restarts."""

from __future__ import annotations

import asyncio
import functools

import pytest
from h2.events import PingAckReceived, PingReceived

from tests.support.rpc import RawServer
from tests.wire.conftest import DRIVERS, need
from tests.wire.harness import (
    OK,
    PREPARE,
    UNAVAILABLE,
    Answer,
    Node,
    claim,
    node,
    request,
    until,
)
from tests.wire.rawdriver import RawDriver

pytestmark = pytest.mark.timeout(60)

IDLE_SECONDS = 4.0


def test_kubelets_idle_disconnect_is_nothing_special(through: Node) -> None:
    """grpc-go's half hour, shortened to 2 s: it hangs up and connects again at once."""
    (sock,) = through.agent_sockets()
    (link,) = through.state()["registration"]["links"]
    (before,) = link["generations"]
    through.kubelet.dial(before["endpoint"], name="idle", idle=2.0)
    assert through.kubelet.prepare(claim("ok"), conn="idle").code == OK
    until(lambda: through.kubelet.state("idle")["ends"] >= 1, "the idle disconnect")
    until(lambda: through.kubelet.state("idle")["state"] == "READY", "the reconnect")
    assert through.kubelet.prepare(claim("ok"), conn="idle").code == OK
    assert through.kubelet.prepare(claim("ok")).code == OK  # its other connection
    assert through.agent_sockets() == [sock]  # hanging up is not what a kubelet restart looks like
    (link,) = through.state()["registration"]["links"]
    (after,) = link["generations"]
    assert (after["id"], after["stopped"], link["renewalsIn"]) == (before["id"], False, [])


@pytest.mark.slow
@pytest.mark.timeout(2400)
async def test_kubelets_real_idle_half_hour() -> None:
    """grpc-go's own default, as kubelet has it; and in all that time no ping for the driver."""
    with node() as it:
        driver = RawDriver(it)
        await driver.start()
        await asyncio.to_thread(it.start_agent)
        await asyncio.to_thread(it.connect)
        assert (await asyncio.to_thread(it.kubelet.prepare, claim("ok"))).code == OK

        def idle() -> bool:
            return bool(it.kubelet.state()["ends"] == 1)

        await asyncio.to_thread(until, idle, "the idle disconnect", 2000)
        ready = functools.partial(until, lambda: it.kubelet.state()["state"] == "READY")
        await asyncio.to_thread(ready, "the reconnect")
        assert (await asyncio.to_thread(it.kubelet.prepare, claim("ok"))).code == OK
        assert len(it.agent_sockets()) == 1  # no renewal
        unpinged(driver)
        await driver.close()


def unpinged(driver: RawDriver) -> None:
    """The agent had one connection to the driver all the time, and no ping went over it."""
    (peer,) = driver.endpoint.peers
    assert not peer.of(PingReceived)
    assert not peer.of(PingAckReceived)


@pytest.mark.parametrize("peer", DRIVERS)
def test_a_driver_that_leaves_with_goaway_answers_what_is_in_flight(peer: str) -> None:
    need(peer)
    with node(drivers={"driverAbsenceHold": "1s"}) as it:
        driver = it.start_driver(peer)
        it.start_agent()
        it.connect()
        wanted = claim("wait-1000")
        call = it.kubelet.begin(PREPARE, request(wanted), timeout=30)
        driver.wait_call(wanted)
        driver.tell("goaway")
        answer = Answer.of(call.reply())
        assert answer.code == OK, answer
        assert answer.claims[wanted.uid]["devices"] == ["gpu-0"]
        driver.wait_event("stopped")
        assert len([one for one in driver.events if one["event"] == "call"]) == 1
        late = it.kubelet.prepare(claim("ok"), timeout=45)
        assert late.code == UNAVAILABLE, late
        # Kubelet's whole time less the margin would be 42 s.
        assert late.seconds < 30


@pytest.mark.parametrize("peer", DRIVERS)
def test_a_driver_that_comes_back_is_used_again(peer: str) -> None:
    need(peer)
    with node(drivers={"driverAbsenceHold": "40s"}) as it:
        first = it.start_driver(peer)
        it.start_agent()
        it.connect()
        first.end()
        call = it.kubelet.begin(PREPARE, request(claim("ok")), timeout=45)
        until(lambda: in_flight(it) == 1, "the call to be held")
        it.start_driver(peer)
        answer = Answer.of(call.reply())
        assert answer.code == OK, answer


def in_flight(node: Node) -> int:
    """Calls of kubelet that the agent has and has not answered."""
    links = node.state()["registration"]["links"]
    return sum(each["inFlight"] for link in links for each in link["generations"])


async def test_no_keepalive_pings_towards_drivers() -> None:
    """grpc-go servers answer pings that come oftener than every 5 minutes with GOAWAY."""
    with node() as it:
        driver = RawDriver(it)
        await driver.start()
        await asyncio.to_thread(it.start_agent)
        await asyncio.to_thread(it.connect)
        assert (await asyncio.to_thread(it.kubelet.prepare, claim("ok"))).code == OK
        await asyncio.sleep(IDLE_SECONDS)
        assert (await asyncio.to_thread(it.kubelet.prepare, claim("ok"))).code == OK
        unpinged(driver)
        await driver.close()


def test_a_strict_driver_that_refuses_kubelets_authority_works_behind_the_agent() -> None:
    """kubelet's registration connection has a percent-encoded path as :authority, which is no host:
    h2 (tonic) resets the call. The agent says `localhost`, so such a driver is served all the same.
    """
    need("tonic")
    with node() as it:
        it.start_driver("tonic")
        told = it.kubelet.process.ask(op="register", target=str(it.driver_sockets[0]))
        with pytest.raises(AssertionError, match="PROTOCOL_ERROR"):
            told.reply()
        it.start_agent()
        it.connect()
        assert it.kubelet.prepare(claim("ok")).code == OK


async def test_the_agents_own_headers_towards_a_driver() -> None:
    """A strict server refuses a percent-encoded path as :authority, so the agent sends none."""
    with node() as it:
        driver = RawDriver(it)
        await driver.start()
        await asyncio.to_thread(it.start_agent)
        await asyncio.to_thread(it.connect)
        assert (await asyncio.to_thread(it.kubelet.prepare, claim("ok"))).code == OK
        for headers in driver.headers:
            found = dict(headers)
            assert found[b":authority"] == b"localhost"
            assert found[b"te"] == b"trailers"
            assert found[b"content-type"] == b"application/grpc"
            assert b"traceparent" not in found
            assert b"grpc-timeout" in found
        assert isinstance(driver.endpoint, RawServer)
        await driver.close()
