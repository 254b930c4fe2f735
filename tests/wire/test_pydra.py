"""The published driver library kubernetes-pydra 0.1.0: grpc.aio, one server on two sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.conftest import need
from tests.wire.harness import (
    CANCELLED,
    OK,
    PREPARE,
    UNIMPLEMENTED,
    UNPREPARE,
    Answer,
    Node,
    claim,
    node,
    request,
)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module", params=["overlay", "intake"])
def pydra(request: pytest.FixtureRequest) -> Iterator[Node]:
    need("pydra")
    with node(registration=request.param) as it:
        it.start_driver("pydra")
        it.start_agent()
        it.connect()
        yield it


def test_prepare_and_unprepare(pydra: Node) -> None:
    assert pydra.driver is not None
    one, two = claim("one"), claim("two")
    answer = pydra.kubelet.prepare(one, two)
    assert answer.code == OK
    assert {uid: entry["devices"] for uid, entry in answer.claims.items()} == {
        one.uid: ["gpu-0"],
        two.uid: ["gpu-0"],
    }
    assert pydra.kubelet.call(UNPREPARE, request(one, two)).code == OK
    pydra.driver.wait_event("call", claim="two", operation="unprepare")


def test_a_failure_is_the_claims_with_a_long_text(pydra: Node) -> None:
    good, bad = claim("one"), claim(f"fail-{100 * 1024}")
    answer = pydra.kubelet.prepare(good, bad)
    assert answer.code == OK
    assert answer.claims[bad.uid]["error"].count("x") >= 100 * 1024
    assert not answer.claims[good.uid]["error"]


def test_unknown_methods_are_unimplemented(pydra: Node) -> None:
    for method in ("/example.v9.Nobody/Anything", PREPARE + "Later"):
        for stream in (False, True):
            assert pydra.kubelet.call(method, b"", stream=stream).code == UNIMPLEMENTED


def test_a_cancelled_call_is_cancelled_in_the_library(pydra: Node) -> None:
    assert pydra.driver is not None
    wanted = claim("slow-one")
    call = pydra.kubelet.begin(PREPARE, request(wanted), timeout=40)
    pydra.driver.wait_event("call", claim="slow-one")
    pydra.kubelet.cancel(call)
    assert Answer.of(call.reply()).code == CANCELLED
    pydra.driver.wait_event("cancelled", claim="slow-one")


def test_kubelets_word_reaches_the_library_in_intake(pydra: Node) -> None:
    assert pydra.driver is not None
    if pydra.config["registration"] == "intake":
        told = pydra.kubelet.register(pydra.agent_sockets()[-1], error="because")
        assert told["code"] == OK  # the library does not mind
        pydra.driver.wait_event("notified", registered=False, error="because")
