"""Health streams and registration in intake mode, in which everything a driver lists passes."""

from __future__ import annotations

import time

import pytest

from tests.wire.conftest import DRIVERS, need
from tests.wire.harness import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    DRIVER,
    HEALTH,
    OK,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    Answer,
    Node,
    Pending,
    claim,
    node,
    until,
)

pytestmark = pytest.mark.timeout(60)

Strict = tuple[Node, bool]
ALPHA = "/v1alpha1.DRAResourceHealth/NodeWatchResources"


def received(node: Node, call: Pending) -> int:
    said = node.kubelet.process.events
    return sum(one.get("event") == "received" and one["call"] == call.number for one in said)


def test_versions_pass_verbatim_and_in_order(strict: Strict) -> None:
    node, health = strict
    told = node.kubelet.register(node.agent_sockets()[-1])
    assert told["versions"] == ["v1.DRAPlugin", "v1.DRAResourceHealth"][: 1 + health]
    assert (told["name"], told["code"]) == (DRIVER, OK)


def test_kubelets_refusal_reaches_the_driver_and_its_error_kubelet(strict: Strict) -> None:
    node, _ = strict
    assert node.driver is not None
    began = time.monotonic()
    told = node.kubelet.register(node.agent_sockets()[-1], error="no, because é")
    assert told["code"] == UNKNOWN
    assert node.driver.wait_event("notified", registered=False)["at"] >= began
    if "registration" in told["message"]:
        assert told["message"].endswith("no, because é")
    assert node.kubelet.register(node.agent_sockets()[-1])["code"] == OK
    assert node.driver.wait_event("notified", registered=True)["at"] >= began


def test_a_health_stream_passes_and_its_end_reaches_the_driver(strict: Strict) -> None:
    node, health = strict
    if not health:
        return
    assert node.driver is not None
    call = node.kubelet.begin(HEALTH, b"", stream=True, timeout=50)
    until(lambda: received(node, call) == 3, "three reports")
    began = time.monotonic()
    node.kubelet.cancel(call)
    assert Answer.of(call.reply()).code == CANCELLED
    told = node.driver.wait_event("cancelled", claim="health")
    assert told["at"] >= began
    assert node.kubelet.prepare(claim("ok")).code == OK


def test_unimplemented_health_arrives_as_unimplemented(strict: Strict) -> None:
    node, health = strict
    methods = [ALPHA] if health else [ALPHA, HEALTH]
    for method in methods:
        answer = node.kubelet.call(method, b"", stream=True)
        assert answer.code == UNIMPLEMENTED, (method, answer)


@pytest.mark.parametrize("peer", DRIVERS)
def test_a_driver_that_dies_ends_the_stream_as_unavailable(peer: str) -> None:
    """Never as unimplemented, after which kubelet would not ask again."""
    need(peer)
    with node(registration="intake", drivers={"driverAbsenceHold": "500ms"}) as it:
        driver = it.start_driver(peer, health=True)
        it.start_agent()
        it.connect()
        call = it.kubelet.begin(HEALTH, b"", stream=True, timeout=50)
        until(lambda: received(it, call) == 3, "three reports")
        driver.end()
        answer = Answer.of(call.reply())
        assert answer.code == UNAVAILABLE, answer
        again = it.kubelet.call(HEALTH, b"", stream=True)
        assert again.code == UNAVAILABLE, again


def test_in_overlay_health_is_not_listed_and_a_stream_is_held_open_and_silent(
    through: Node,
) -> None:
    for method in (HEALTH, ALPHA):
        call = through.kubelet.begin(method, b"", stream=True, timeout=1.0)
        answer = Answer.of(call.reply())
        assert (answer.code, answer.messages) == (DEADLINE_EXCEEDED, [])  # its own
    assert through.kubelet.prepare(claim("ok")).code == OK
