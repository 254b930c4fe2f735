"""Connections that come and go: idle kubelets, drivers that leave gracefully, pings, restarts."""

from __future__ import annotations

import asyncio
import time

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
    endpoint = through.connect(name="idle", idle=2.0)["endpoint"]
    sockets = through.agent_sockets()
    assert through.kubelet.prepare(claim("ok"), conn="idle").code == OK
    until(lambda: through.kubelet.state("idle")["ends"] >= 1, "the idle disconnect", limit=8)
    until(lambda: through.kubelet.state("idle")["state"] == "READY", "the reconnect", limit=3)
    assert through.kubelet.prepare(claim("ok"), conn="idle").code == OK
    assert through.kubelet.prepare(claim("ok")).code == OK  # its other connection
    assert set(sockets) <= set(through.agent_sockets())
    (link,) = through.state()["registration"]["links"]
    reasons = [one for one in through.log() if "published: kubelet-restart" in one.get("msg", "")]
    (mine,) = [one for one in link["generations"] if one["endpoint"] == endpoint]
    assert not mine["stopped"]
    # Registering twice, as this test module does, is what a kubelet restart looks like; hanging up
    # is not.
    assert len(reasons) <= 1


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_kubelets_real_idle_half_hour() -> None:
    """grpc-go's own default, as kubelet has it."""
    with node() as it:
        it.start_driver("go")
        it.start_agent()
        it.connect()
        assert it.kubelet.prepare(claim("ok")).code == OK
        until(lambda: it.kubelet.state()["ends"] == 1, "the idle disconnect", limit=2000)
        until(lambda: it.kubelet.state()["state"] == "READY", "the reconnect", limit=3)
        assert it.kubelet.prepare(claim("ok")).code == OK
        assert len(it.agent_sockets()) == 1  # no renewal


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
        late = it.kubelet.prepare(claim("ok"), timeout=20)
        assert late.code == UNAVAILABLE, late
        assert late.seconds < 3


@pytest.mark.parametrize("peer", DRIVERS)
def test_a_driver_that_comes_back_is_used_again(peer: str) -> None:
    need(peer)
    with node() as it:
        first = it.start_driver(peer)
        it.start_agent()
        it.connect()
        first.end()
        call = it.kubelet.begin(PREPARE, request(claim("ok")), timeout=30)
        time.sleep(0.3)
        it.start_driver(peer)
        answer = Answer.of(call.reply())
        assert (answer.code, answer.seconds < 10) == (OK, True), answer


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
        peers = driver.endpoint.peers
        assert len(peers) == 1  # one connection all the time
        assert not peers[0].of(PingReceived)
        assert not peers[0].of(PingAckReceived)
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
