"""Lines about calls: quiet when all is well, one safe line when not."""

from __future__ import annotations

import logging

import pytest

from agent.core.model import CallFact, ClaimOutcome, Culprit, DeviceState, Kind, Verdict
from agent.proxy import calllog
from tests.support.proxying import DRIVER, PREPARE, A

VERDICT = Verdict(Kind.PERMANENT, Culprit.DEVICE, "rule-1", device="gpu-1")


def fact(*outcomes: ClaimOutcome) -> CallFact:
    return CallFact(DRIVER, "prepare", PREPARE, outcomes, True, 1.0, duration=1.5, trace_id="ab")


def test_a_healthy_call_is_debug_and_a_retried_one_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "agent.call")
    calllog.prepared(fact(ClaimOutcome(A, DeviceState.PREPARED, attempts=1)), "x")
    calllog.prepared(fact(ClaimOutcome(A, DeviceState.PREPARED, attempts=3)), "x")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.INFO]


def test_a_failure_says_verdict_rule_device_trace_and_a_safe_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = "boom\n\x1b[31m" + "x" * 5000
    outcome = ClaimOutcome(A, DeviceState.FAILED, VERDICT, 2, text, text)
    calllog.prepared(fact(outcome), "permanent failure")
    (record,) = caplog.records
    said = vars(record)
    assert (record.levelno, record.message) == (logging.WARNING, "prepare failed")
    assert (said["verdict"], said["culprit"], said["rule"]) == ("permanent", "device", "rule-1")
    assert (said["device"], said["trace_id"], said["attempts"]) == ("gpu-1", "ab", 2)
    assert said["claims"] == ["ns/claim-a"]
    assert "\n" not in said["error"]
    assert "\x1b" not in said["error"]
    assert len(said["error"]) <= 400


def test_a_held_answer_says_so(caplog: pytest.LogCaptureFixture) -> None:
    calllog.prepared(fact(ClaimOutcome(A, DeviceState.FAILED, VERDICT, held=True)), "held verdict")
    assert caplog.records[0].message == "prepare held back"


def test_unprepare(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "agent.call")
    calllog.unprepared(DRIVER, 1, 0.1, "")
    calllog.unprepared(DRIVER, 1, 0.1, "busy\n")
    assert [r.levelno for r in caplog.records] == [logging.DEBUG, logging.WARNING]
