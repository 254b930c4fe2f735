from __future__ import annotations

from typing import Any

import pytest

from agent.core.model import ClaimOutcome, ClaimRef, Culprit, DeviceState, Kind, Verdict
from agent.observe import methods, tracing
from agent.settings.model import NodeIdentity
from agent.settings.model import Tracing as Settings
from tests.support.otlp import Received, Receiver, plain

PREPARE = methods.PREPARES[0]
CLAIM = ClaimRef("default", "0f6b0c5e-7f9f-4bb1-a8f2-1b7a7f1a2b3c", "pod-gpu")
VERDICT = Verdict(Kind.PERMANENT, Culprit.DEVICE, "xid-79", device="gpu-0")
OK, ERROR = 0, 2


def outcome(state: DeviceState, **more: Any) -> ClaimOutcome:
    return ClaimOutcome(CLAIM, state, **more)


async def one_call(code: int, *outcomes: ClaimOutcome) -> Received:
    async with Receiver() as receiver:
        traces = tracing.make(
            Settings(endpoint=receiver.endpoint), NodeIdentity(node_name="node-a"), {}
        )
        traces.call(PREPARE, "gpu.example.com", [CLAIM]).end(code, outcomes)
        await traces.close(10)
    return receiver.spans[0]


async def one_attempt(*args: Any, **more: Any) -> Received:
    async with Receiver() as receiver:
        traces = tracing.make(
            Settings(endpoint=receiver.endpoint), NodeIdentity(node_name="node-a"), {}
        )
        call = traces.call(PREPARE, "gpu.example.com", [CLAIM])
        call.attempt(3, [CLAIM], "/plugins/dra.sock").end(*args, **more)
        await traces.close(10)
    return receiver.spans[0]


async def test_a_good_call() -> None:
    got = await one_call(0, outcome(DeviceState.PREPARED, attempts=1))
    assert got.span.status.code == OK
    assert got.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": PREPARE[1:],
        "rpc.status_code": "OK",
        "dra.driver.name": "gpu.example.com",
        "dra.claim.uid": CLAIM.uid,
        "dra.claim.name": "pod-gpu",
        "dra.claim.namespace": "default",
        "dra.claim.count": 1,
        "dra.attempts": 1,
    }


async def test_a_claim_that_failed_is_an_error_though_grpc_says_ok() -> None:
    failed = outcome(
        DeviceState.FAILED, verdict=VERDICT, attempts=4, last_error="bad\ncard", held=True
    )
    got = await one_call(0, outcome(DeviceState.PREPARED, attempts=1), failed)
    assert got.span.status.code == ERROR
    assert got.span.status.message == "bad; card"
    assert got.attributes["rpc.status_code"] == "OK"
    assert got.attributes["error.type"] == "claim_error"
    assert got.attributes["dra.verdict"] == "permanent"
    assert got.attributes["dra.culprit"] == "device"
    assert got.attributes["dra.rule"] == "xid-79"
    assert got.attributes["dra.device"] == "gpu-0"
    assert got.attributes["dra.attempts"] == 4
    event = plain(got.span.events[1].attributes)
    assert event["dra.claim.state"] == "failed"
    assert event["dra.claim.held"] is True
    assert event["exception.message"] == "bad; card"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, OK) for code in (1, 3, 5, 6, 7, 8, 9, 10, 11, 16)),
        *((code, ERROR) for code in (2, 4, 12, 13, 14, 15)),
    ],
)
async def test_a_server_span_is_an_error_for_the_servers_codes(code: int, status: int) -> None:
    got = await one_call(code)
    assert got.span.status.code == status
    assert got.attributes["error.type"] == methods.spec_code(code)
    assert got.attributes["rpc.status_code"] == methods.spec_code(code)


async def test_hostile_text_is_cut_and_clean() -> None:
    got = await one_call(14, outcome(DeviceState.FAILED, last_error="\x1b[2J\ud800x" * 100_000))
    assert len(got.span.status.message.encode()) <= 1024
    assert "\x1b" not in got.span.status.message


async def test_an_attempt_that_succeeded() -> None:
    got = await one_attempt(0)
    assert got.span.status.code == OK
    assert got.attributes["dra.attempt.number"] == 3
    assert got.attributes["server.address"] == "/plugins/dra.sock"
    assert got.attributes["network.peer.address"] == "/plugins/dra.sock"
    assert "error.type" not in got.attributes


@pytest.mark.parametrize(
    ("args", "more", "error_type"),
    [
        ((9, "text"), {}, "FAILED_PRECONDITION"),
        ((0, "text", VERDICT), {}, "claim_error"),
        ((None, "text"), {"error_type": "refused"}, "refused"),
        ((None, "text"), {}, "transport"),
    ],
)
async def test_an_attempt_that_failed(
    args: tuple[Any, ...], more: dict[str, str], error_type: str
) -> None:
    got = await one_attempt(*args, **more)
    assert got.span.status.code == ERROR
    assert got.span.status.message == "text"
    assert got.attributes["error.type"] == error_type
    assert ("rpc.status_code" in got.attributes) == (args[0] is not None)


async def test_of_many_claims_those_that_failed_are_told() -> None:
    good = [outcome(DeviceState.PREPARED, attempts=1) for _ in range(500)]
    got = await one_call(0, *good, outcome(DeviceState.FAILED, last_error="x"))
    assert [plain(e.attributes)["dra.claim.state"] for e in got.span.events] == ["failed"]
