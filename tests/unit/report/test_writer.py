from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent import names
from agent.core.model import Culprit, DeviceState, Kind, Verdict
from agent.core.record import Widespread
from agent.report.writer import verdicts_of
from tests.support.kube_api import eventually
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import BUSY, GPU, NET, PARAMETERS, claim, fact, outcome, record

STRANGE = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "default")
DEVICE = Verdict(Kind.PERMANENT, Culprit.DEVICE, "gone")


@pytest.fixture
async def observe(tmp_path: Path) -> AsyncIterator[Bench]:
    settings = config("observe", report={"escalateAfterAttempts": 3, "escalateAfter": 60.0})
    async with bench(tmp_path, settings) as made:
        yield made


def test_verdicts_of_ended_calls_only() -> None:
    claims = [claim("c"), claim("d")]
    made = record(claims, fact(outcome("c")), fact(outcome("d"), final=False))
    assert verdicts_of(made) == [PARAMETERS]


def test_no_device_is_called_faulty_where_the_driver_is_suspected() -> None:
    made = record([claim()], fact(outcome(verdict=DEVICE)))
    assert verdicts_of(made) == [DEVICE]
    spread = (((GPU, "uid-c"), Widespread("driver", "gone", 2, 2)),)
    assert verdicts_of(replace(made, widespread=spread)) == []


async def test_an_unknown_failure_escalates_once(observe: Bench) -> None:
    await observe.pod("p")
    now = 1000.0
    for step in range(5):
        observe.submit(outcome("p-0", verdict=STRANGE), replied_at=now + 30.0 * step)
        await observe.quiet()
    assert observe.escalations == [(GPU, "default")]
    message = observe.prepared("p")["message"]
    assert "No longer normal: the same failure for 60 s, 3 attempts." in message
    notes = [event["note"] for event in observe.api.events]
    assert ["No longer normal" in note for note in notes] == [False, True]
    assert {event["action"] for event in observe.api.events} == {"Report"}
    assert observe.phase("p") == "Pending"
    assert len(observe.api.patches()) == 2
    observe.submit(outcome("p-0", DeviceState.PREPARED), replied_at=now + 999)
    await eventually(lambda: observe.prepared("p")["status"] == "True")


async def test_observe_says_what_it_would_have_done(
    observe: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await observe.pod("p")
    for _ in range(3):
        observe.submit(outcome("p-0"))
        await observe.quiet()
    assert observe.outcomes == [(GPU, "FailPod", False, "parameters")]
    assert "pod ns/p would be failed in mode enforce" in caplog.text
    assert "enforce would have failed the pod: the parameters" in observe.prepared("p")["message"]
    (state,) = observe.reporter.state()
    assert state["outcome"] == {
        "action": "FailPod",
        "acted": False,
        "reason": "not failed: mode is observe; enforce would have failed the pod: "
        "the parameters can never be prepared",
        "driver": GPU,
        "culprit": "parameters",
    }


async def test_reports_and_failures_are_counted(tmp_path: Path) -> None:
    async with bench(tmp_path, config("enforce")) as made:
        await made.pod("p")
        made.submit(outcome("p-0"))
        await eventually(lambda: made.phase("p") == "Failed")
        await made.pod("q", owner="ReplicaSet")
        made.submit(outcome("q-0"))
        await made.pod("r")
        made.submit(outcome("r-0", verdict=BUSY))
        await eventually(lambda: len(made.outcomes) == 3)
        assert sorted(made.outcomes) == [
            (GPU, "FailPod", True, "parameters"),
            (GPU, "Report", True, "device"),
            (GPU, "Report", True, "parameters"),
        ]


async def test_a_pod_is_failed_only_by_a_driver_that_enforces(tmp_path: Path) -> None:
    settings = config("observe", drivers={"perDriver": {NET: {"mode": "enforce"}}})
    async with bench(tmp_path, settings) as made:
        made.calls.served = {GPU, NET}
        await made.pod("p", "gpu-0", f"{NET}/eth0")
        made.submit(outcome("p-0"))
        made.submit(outcome("p-0", DeviceState.PREPARED), driver=NET)
        await eventually(lambda: made.prepared("p"))
        await made.quiet()
        assert made.phase("p") == "Pending"
        assert made.outcomes == [(GPU, "FailPod", False, "parameters")]
        await made.pod("q", "gpu-1", f"{NET}/eth1")
        made.submit(outcome("q-0", DeviceState.PREPARED))
        made.submit(outcome("q-0"), driver=NET)
        await eventually(lambda: made.phase("q") == "Failed")
        assert made.outcomes[-1] == (NET, "FailPod", True, "parameters")


async def test_three_claims_by_one_rule_fail_no_pod(tmp_path: Path) -> None:
    settings = config("enforce", outcome={"failDelay": 0.5})
    async with bench(tmp_path, settings) as made:
        for name in "pqr":
            await made.pod(name, f"gpu-{name}")
        for name in "pqr":
            made.submit(outcome(f"{name}-0"))
        await eventually(lambda: all(made.prepared(name) for name in "pqr"))
        await made.quiet()
        assert {made.phase(name) for name in "pqr"} == {"Pending"}
        for name in "pqr":
            message = made.prepared(name)["message"]
            assert "Pod not failed: 3 claims failed by rule bad-strategy within 10" in message
            assert "Suspect: 3 claims" in message
        assert made.reporter.suspects() == [
            {"suspect": "driver", "driver": GPU, "rule": "bad-strategy", "claims": 3, "devices": 0}
        ]


async def test_two_faulty_devices_accuse_the_driver_in_both_pods(observe: Bench) -> None:
    for name in "pq":
        await observe.pod(name, f"gpu-{name}")
    observe.submit(outcome("p-0", verdict=DEVICE))
    await eventually(lambda: observe.api.condition("p", names.CONDITION_DEVICE_FAULT))
    assert observe.api.condition("p", names.CONDITION_DEVICE_FAULT)["status"] == "True"
    observe.submit(outcome("q-0", verdict=DEVICE))
    await eventually(lambda: "Suspect: " in observe.prepared("q").get("message", ""))
    # The first pod is seen in the new light, without a new call.
    await eventually(lambda: "Suspect: " in observe.prepared("p")["message"])
    await observe.quiet()
    assert observe.api.condition("p", names.CONDITION_DEVICE_FAULT)["status"] == "False"
    assert observe.api.condition("q", names.CONDITION_DEVICE_FAULT) == {}
    devices = [d for pod in observe.reporter.state() for d in pod["devices"]]
    assert [(d["suspect"], d["culprit"]) for d in devices] == [("driver", "device")] * 2


async def test_the_same_device_for_two_claims_is_the_suspect(observe: Bench) -> None:
    for name in "pq":
        await observe.pod(name, "gpu-0")
        observe.submit(outcome(f"{name}-0", verdict=STRANGE))
    for name in "pq":
        await eventually(lambda n=name: "Suspect: gpu-0" in observe.prepared(n).get("message", ""))  # type: ignore[misc]
    (device, _) = [d for pod in observe.reporter.state() for d in pod["devices"]]
    assert (device["suspect"], device["culprit"]) == ("device", "unknown")
