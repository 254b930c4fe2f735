"""Calls of a grpc-go kubelet to drivers of several makes, with the agent between."""

from __future__ import annotations

import pytest

from agent import names
from tests.wire.harness import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    DRIVER,
    FAILED_PRECONDITION,
    INTERNAL,
    LIMIT,
    OK,
    PREPARE,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    UNPREPARE,
    Answer,
    Node,
    claim,
    request,
)

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
LATER = "/example.v7.Later/"
UNKNOWN_FIELD = b"\xfa\x01\x05later"  # field 31, a string
FAILURE_HEAD = "é%\n" * 3
RESERVE = 0.5  # seconds that the agent keeps to hand over an answer
ROUNDED = 0.1  # seconds; each hop may round what is left
BYTES_VALUE = b"\x0a\x05\x00\xffabc"


def test_kubelets_registration_with_its_percent_encoded_authority(through: Node) -> None:
    told = through.kubelet.register(through.agent_sockets()[-1])
    assert (told["type"], told["name"], told["code"]) == ("DRAPlugin", DRIVER, OK)
    assert told["versions"] == ["v1.DRAPlugin"]
    assert f"/{names.ENDPOINT_DIR}/" in told["endpoint"]


def test_a_prepare_and_an_unprepare(through: Node) -> None:
    one, two = claim("ok"), claim("ok")
    answer = through.kubelet.prepare(one, two)
    assert (answer.code, answer.message) == (OK, "")
    assert {uid: entry["devices"] for uid, entry in answer.claims.items()} == {
        one.uid: ["gpu-0"],
        two.uid: ["gpu-0"],
    }
    assert not any(entry["error"] for entry in answer.claims.values())
    assert through.kubelet.call(UNPREPARE, request(one, two)).code == OK


def test_unknown_fields_pass_both_ways(through: Node) -> None:
    assert through.driver is not None
    wanted = claim("ok")
    answer = through.kubelet.prepare(wanted, extra=UNKNOWN_FIELD)
    assert answer.messages[0].endswith(UNKNOWN_FIELD)
    assert through.driver.wait_call(wanted)["body"] == request(wanted) + UNKNOWN_FIELD


def test_metadata_binary_too_passes_both_ways(through: Node) -> None:
    blob = bytes(range(256))
    answer = through.kubelet.prepare(
        claim("meta"), metadata=(("x-text", "a value, with a comma"), ("x-bytes-bin", blob))
    )
    assert answer.code == OK
    assert ("x-text", b"a value, with a comma") in answer.header
    assert ("x-bytes-bin", blob) in answer.header


@pytest.mark.parametrize("method", [PREPARE, UNPREPARE])
def test_an_error_keeps_code_text_and_details(through: Node, method: str) -> None:
    answer = through.kubelet.call(method, request(claim("fail-40")))
    assert answer.code == FAILED_PRECONDITION
    assert FAILURE_HEAD + "x" in answer.message
    assert b"\x08\x09" in answer.details  # google.rpc.Status: code 9


def test_an_error_of_100_kib(through: Node) -> None:
    answer = through.kubelet.prepare(claim(f"fail-{100 * 1024}"))
    assert answer.code == FAILED_PRECONDITION
    assert FAILURE_HEAD in answer.message
    assert answer.message.count("x") >= 100 * 1024 - 64
    assert through.kubelet.prepare(claim("ok")).code == OK
    assert through.kubelet.state()["ends"] == 0  # the connection has survived it


def test_an_unknown_method_is_unimplemented_as_the_driver_says_it(through: Node) -> None:
    for method in (
        f"/{names.SERVICE_V1}/NodeDoSomethingElse",
        "/example.v9.Nobody/Anything",
    ):
        for stream in (False, True):
            answer = through.kubelet.call(method, BYTES_VALUE, stream=stream)
            assert answer.code == UNIMPLEMENTED, (method, stream, answer)


def test_an_unknown_registration_method_is_unimplemented(through: Node) -> None:
    through.kubelet.dial(str(through.agent_sockets()[-1]), name="registration")
    for stream in (False, True):
        answer = through.kubelet.call(
            "/pluginregistration.Registration/Later", b"", stream=stream, conn="registration"
        )
        assert answer.code == UNIMPLEMENTED


def test_services_that_the_agent_does_not_know_pass(through: Node) -> None:
    answer = through.kubelet.call(LATER + "Anything", BYTES_VALUE)
    assert (answer.code, answer.messages) == (OK, [BYTES_VALUE])
    chat = through.kubelet.call(LATER + "Chat", BYTES_VALUE, b"", BYTES_VALUE, stream=True)
    assert (chat.code, chat.message) == (FAILED_PRECONDITION, "ends so")
    assert chat.messages == [BYTES_VALUE] * 2 + [b""] * 2 + [BYTES_VALUE] * 2
    assert ("x-after", b"last") in chat.trailer


def test_a_trailers_only_answer_of_a_stream(through: Node) -> None:
    answer = through.kubelet.call(LATER + "Chat", stream=True)
    assert (answer.code, answer.message, answer.messages) == (FAILED_PRECONDITION, "ends so", [])
    assert ("x-after", b"last") in answer.trailer


def test_the_drivers_time_is_kubelets_less_a_little(through: Node) -> None:
    assert through.driver is not None
    for timeout in (45.0, 25.0):
        wanted = claim("ok")
        answer = through.kubelet.prepare(wanted, timeout=timeout)
        assert answer.code == OK
        left = through.driver.wait_call(wanted)["leftMs"] / 1000
        # Of what kubelet gave, the whole call may have been gone when it came to the driver.
        assert timeout - answer.seconds - RESERVE - ROUNDED < left <= timeout


def test_a_deadline_ends_the_drivers_call_too(through: Node) -> None:
    assert through.driver is not None
    wanted = claim("slow-deadline")
    answer = through.kubelet.prepare(wanted, timeout=1.5)
    assert answer.code == DEADLINE_EXCEEDED
    # By itself the driver waits for a minute.
    through.driver.wait_event("cancelled", claim=wanted.name)


def test_a_cancelled_call_is_cancelled_at_the_driver(through: Node) -> None:
    assert through.driver is not None
    wanted = claim("slow-cancel")
    call = through.kubelet.begin(PREPARE, request(wanted), timeout=3 * LIMIT)
    through.driver.wait_call(wanted)
    through.kubelet.cancel(call)
    assert Answer.of(call.reply()).code == CANCELLED
    # Long before the call's time is over.
    through.driver.wait_event("cancelled", claim=wanted.name)


def test_an_answer_near_kubelets_limit_passes_and_beyond_it_kubelet_refuses(through: Node) -> None:
    answer = through.kubelet.prepare(claim(f"large-{4 * MIB - 1024}"))
    assert (answer.code, len(answer.messages[0]) > 4 * MIB - 1024) == (OK, True)
    answer = through.kubelet.prepare(claim(f"large-{4 * MIB + 1024}"))
    assert answer.code == RESOURCE_EXHAUSTED
    assert "dra-agent" not in answer.message  # grpc-go's own words
    assert "4194304" in answer.message


def test_a_request_near_the_drivers_limit_passes_and_beyond_it_the_driver_refuses(
    through: Node,
) -> None:
    def padded(size: int) -> bytes:
        filler = size - 64
        length = bytes(
            [filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14 & 0x7F | 0x80]
        )
        return b"\xfa\x01" + length + bytes([filler >> 21]) + b"p" * filler

    assert through.kubelet.prepare(claim("ok"), extra=padded(4 * MIB - 64)).code == OK
    answer = through.kubelet.prepare(claim("ok"), extra=padded(4 * MIB + 4096))
    # tonic calls it OUT_OF_RANGE; what matters is that it is the driver's own answer.
    assert answer.code in (RESOURCE_EXHAUSTED, 11), answer
    assert "4194304" in answer.message or "4 MiB" in answer.message
    assert through.kubelet.prepare(claim("ok")).code == OK


def test_a_message_larger_than_the_agents_own_limit_is_refused_not_believed(through: Node) -> None:
    answer = through.kubelet.call(PREPARE, b"\x0a" * (17 * MIB))
    assert answer.code == RESOURCE_EXHAUSTED
    assert "larger than max" in answer.message
    assert through.kubelet.prepare(claim("ok")).code == OK


def test_an_unreadable_request_is_the_drivers_to_refuse(through: Node) -> None:
    answer = through.kubelet.call(PREPARE, b"\xff\xff\xff", timeout=LIMIT)
    assert answer.code != OK
    assert answer.code in (INTERNAL, 2, 3)
    assert through.kubelet.prepare(claim("ok")).code == OK
