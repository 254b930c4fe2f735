from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent import names
from agent.core import status
from agent.core.model import Culprit, DeviceState, Kind, Verdict
from agent.core.pods import Condition
from tests.support.kube_records import (
    BUSY,
    NET,
    PARAMETERS,
    WALL,
    claim,
    fact,
    outcome,
    pod,
    record,
)

ONE = record([claim()], fact(outcome()))
TWO = record(
    [claim("c", "gpu-0", "gpu-1"), claim("n", "eth0", driver=NET)],
    fact(outcome("c", verdict=replace(PARAMETERS, device="gpu-1"), attempts=2)),
    fact(outcome("n", DeviceState.PREPARED), driver=NET),
)


def test_message_tells_all_worst_first() -> None:
    said = status.failing(TWO, note="not failed: mode is observe")
    assert said == status.Statement(
        "False",
        "SomeDevicesFailed",
        "1 of 3 devices could not be prepared. gpu-1 of gpu.example.com (claim c): "
        "invalid sharing strategy. Hint: Correct the claim's parameters "
        f"[permanent, parameters, rule bad-strategy, attempts 2, trace {'ab' * 16}]. "
        "Blocked by it: gpu-0. Prepared: eth0. Pod not failed: mode is observe.",
    )


def test_reasons() -> None:
    going = record([claim()], fact(outcome(verdict=BUSY), final=False))
    assert status.failing(ONE).reason == names.REASON_ALL_FAILED
    assert status.failing(TWO).reason == names.REASON_SOME_FAILED
    assert status.failing(ONE, held=True).reason == names.REASON_HELD_BACK
    assert status.failing(going).reason == names.REASON_RETRYING
    assert "being retried" in status.failing(going).message


def test_message_is_bounded_and_keeps_the_outcome() -> None:
    claims = [claim(f"c{i}", f"gpu-{i}") for i in range(40)]
    made = record(claims, *(fact(outcome(c.name, error="\u4e16" * 2000)) for c in claims))
    note = "not failed: because"
    event = status.event(pod(), made, action="Report", node="n", note=note, wall=WALL)
    for text, limit in ((status.failing(made, note=note).message, 4096), (event["note"], 1024)):
        assert len(text.encode()) <= limit
        assert text.startswith("40 of 40 devices could not be prepared. gpu-0")
        assert text.endswith("Pod not failed: because.")


def test_prepared_tells_attempts_and_first_error() -> None:
    made = record(
        [claim()],
        fact(outcome(verdict=BUSY, attempts=3, error="device busy")),
        fact(outcome("c", DeviceState.PREPARED)),
    )
    said = status.prepared(made)
    assert (said.status, said.reason) == ("True", "Prepared")
    assert said.message == (
        f"all devices prepared after 4 attempts (trace {'ab' * 16}); first error: device busy"
    )
    quiet = record([claim()], fact(outcome("c", DeviceState.PREPARED)))
    assert status.prepared(quiet).message == "all devices prepared"


def kinds(bodies: list[dict[str, Any]]) -> dict[str, str]:
    return {b["type"].removeprefix("dra-agent.io/"): b["status"] for b in bodies}


@pytest.mark.parametrize(
    ("verdict", "extra"),
    [
        (PARAMETERS, {"InvalidParameters": "True"}),
        (replace(PARAMETERS, culprit=Culprit.CLAIM), {"InvalidParameters": "True"}),
        (replace(PARAMETERS, culprit=Culprit.DEVICE), {"DeviceFault": "True"}),
        (replace(PARAMETERS, culprit=Culprit.DRIVER), {}),
        (Verdict(Kind.TRANSIENT, Culprit.DEVICE, "r"), {}),
        (Verdict(Kind.AMBIGUOUS, Culprit.PARAMETERS, "r"), {}),
    ],
)
def test_conditions_for_job_policies(verdict: Verdict, extra: dict[str, str]) -> None:
    bodies = status.conditions(pod(), status.failing(ONE), verdicts=[verdict], wall=WALL)
    assert kinds(bodies) == {"DevicesPrepared": "False", **extra}
    assert {b["lastTransitionTime"] for b in bodies} == {"2026-11-30T14:26:31Z"}


def as_written(bodies: list[dict[str, Any]]) -> tuple[Condition, ...]:
    return tuple(
        Condition(b["type"], b["status"], b["reason"], b["message"], b["lastTransitionTime"])
        for b in bodies
    )


def test_nothing_changed_nothing_written() -> None:
    bodies = status.conditions(pod(), status.failing(ONE), verdicts=[PARAMETERS], wall=WALL)
    again = pod(conditions=as_written(bodies))
    assert (
        status.conditions(again, status.failing(ONE), verdicts=[PARAMETERS], wall=WALL + 60) == []
    )


def test_transition_time_moves_only_with_the_status() -> None:
    bodies = status.conditions(pod(), status.failing(ONE), verdicts=[], wall=WALL)
    later = pod(conditions=as_written(bodies))
    (kept,) = status.conditions(later, status.failing(ONE, held=True), verdicts=[], wall=WALL + 60)
    assert kept["lastTransitionTime"] == "2026-11-30T14:26:31Z"
    (moved,) = status.conditions(later, status.prepared(ONE), verdicts=[], wall=WALL + 60)
    assert moved["lastTransitionTime"] == "2026-11-30T14:27:31Z"


def test_recovery_takes_the_fault_conditions_back() -> None:
    bodies = status.conditions(pod(), status.failing(ONE), verdicts=[PARAMETERS], wall=WALL)
    later = pod(conditions=as_written(bodies))
    assert kinds(status.conditions(later, status.bypassed(), verdicts=[], wall=WALL)) == {
        "DevicesPrepared": "True",
        "InvalidParameters": "False",
    }


def test_patches() -> None:
    bodies: list[dict[str, Any]] = [{"type": "t"}]
    assert status.condition_patch(pod(), bodies) == {
        "metadata": {"uid": "uid-p"},
        "status": {"conditions": bodies},
    }
    with_text = status.condition_patch(pod(), bodies, "{}")
    assert with_text["metadata"]["annotations"] == {names.ANNOTATION_FAILURES: "{}"}
    failed = status.failed_patch(pod(), bodies, text="m" * 5000, annotation="{}")
    assert failed["metadata"] == {
        "uid": "uid-p",
        "resourceVersion": "7",
        "annotations": {names.ANNOTATION_FAILURES: "{}"},
    }
    assert (failed["status"]["phase"], failed["status"]["reason"]) == (
        "Failed",
        "DevicePrepareFailed",
    )
    assert len(failed["status"]["message"].encode()) <= 1024


def test_event_is_what_the_api_takes() -> None:
    body = status.event(pod(), TWO, action="FailPod", node="node-a", note="failed: x", wall=WALL)
    assert body["metadata"]["name"].startswith("p.")
    assert body["eventTime"] == "2026-11-30T14:26:31.250000Z"
    assert (body["type"], body["reason"], body["action"]) == (
        "Warning", "DevicePrepareFailed", "FailPod",
    )  # fmt: skip
    assert len(body["note"].encode()) <= 1024
    assert (body["reportingController"], body["reportingInstance"]) == (
        "dra-agent.io/node-agent", "node-a",
    )  # fmt: skip
    assert body["regarding"]["uid"] == "uid-p"
    assert (body["related"]["kind"], body["related"]["uid"]) == ("ResourceClaim", "uid-c")


def test_event_name_follows_pod_rule_and_outcome() -> None:
    def name(the_pod: Any, made: Any, action: str) -> str:
        body = status.event(the_pod, made, action=action, node="n", note="", wall=WALL)
        return str(body["metadata"]["name"])

    assert name(pod(), ONE, "Report") == name(pod(), ONE, "Report")
    other = record([claim()], fact(outcome(verdict=BUSY)))
    found = {
        name(pod(), ONE, "Report"),
        name(pod(), ONE, "FailPod"),
        name(pod(), other, "Report"),
        name(pod(uid="x"), ONE, "Report"),
    }
    assert len(found) == 4
    assert len(name(pod(name="p" * 253), ONE, "Report")) <= 253
    for sign in ".-":
        long = f"{'p' * 229}{sign}{'p' * 23}"
        assert name(pod(name=long), ONE, "Report").startswith(f"{'p' * 229}."), "a valid name"
