"""What of the raw observations is compared."""

from __future__ import annotations

import copy
from typing import Any

from .compare import differ
from .compare.facts import Raw, facts

NAME = "gpu-direct.test"
STATE = {
    "phase": "Running",
    "reason": "",
    "deleting": False,
    "restarts": 0,
    "waiting": [],
    "conditions": {"Ready": "True"},
    "annotations": [],
    "health": [],
}


def _call(op: str, began: float) -> dict[str, Any]:
    told = {"m": op, "began": began, "claim": "c", "code": 0, "error": "", "instance": "new"}
    return {**told, "deadline": 45.0}


def raw() -> Raw:
    """A pod that lived."""
    return {
        "scenario": "gpu",
        "side": "direct",
        "driver_log": {NAME: [_call("prepare", 1), _call("unprepare", 5)]},
        "kubelet_log": {NAME: ['"Registered DRA plugin" chosenService="v1"']},
        "events": {"gpu-direct-a": [{"type": "Normal", "reason": "Started", "message": "on"}]},
        "kubelet_calls": {},
        "skipped": {},
        "checkpoints": {},
        "in_use": {"running": {NAME: 1}},
        "restarted": 3.0,
        "slices": {NAME: [[0.0, ["uid"]]]},
        "pods": {"gpu-direct-a": [[0.0, copy.deepcopy(STATE)], [9.0, {"phase": "gone"}]]},
        "seconds": {},
    }


def seen(other: Raw) -> list[str]:
    red, _ = differ.differences(facts(raw()), facts(other), run="overlay", scenario="healthy")
    return [each.path for each in red]


def test_nothing_is_seen_where_nothing_is_different() -> None:
    assert seen(raw()) == []


def test_the_instance_that_got_a_call_is_compared() -> None:
    other = raw()
    other["driver_log"][NAME][0]["instance"] = "old"
    assert seen(other) == ["driver.main.calls.c"]


def test_what_the_kubelet_had_no_time_to_write_is_not_compared() -> None:
    one, other = raw(), raw()
    for each in (one, other):
        each["pods"]["gpu-direct-a"][0][1]["phase"] = "Pending"
    del other["pods"]["gpu-direct-a"][0][1]["conditions"]["Ready"]
    assert facts(one) == facts(other)
    one["pods"]["gpu-direct-a"][0][1]["phase"] = "Running"
    assert facts(one)["pods.a.conditions"] == ["Ready"]


def test_conditions_and_what_containers_wait_for_are_compared() -> None:
    other = raw()
    state = other["pods"]["gpu-direct-a"][0][1]
    state["conditions"]["Ready"], state["waiting"] = "False", ["CrashLoopBackOff"]
    assert seen(other) == ["pods.a.last", "pods.a.waiting"]


def test_an_events_type_is_compared() -> None:
    other = raw()
    other["events"]["gpu-direct-a"][0]["type"] = "Warning"
    assert seen(other) == ["events.a.Started"]


def test_registrations_that_went_are_counted() -> None:
    other = raw()
    other["kubelet_log"][NAME] += ['"Unregistered DRA plugin"'] * 30
    assert seen(other) == ["registration.main.unregistered"]


def test_registrations_that_ran_out_of_time_are_counted() -> None:
    other = raw()
    line = '"RegisterPlugin error -- context deadline exceeded"'
    other["kubelet_log"][NAME] += [line] * 3
    assert seen(other) == ["registration.main.timeouts"]


def test_the_kubelets_metrics_of_claims_are_compared() -> None:
    other = raw()
    other["in_use"]["running"][NAME] = 2
    other["skipped"] = {NAME: {"prepare": 1}}
    assert seen(other) == ["in_use.running", "skipped.main.prepare"]


def test_calls_after_the_kubelets_restart_are_counted_apart() -> None:
    other = raw()
    other["driver_log"][NAME].insert(1, _call("prepare", 4))
    assert seen(other) == ["driver.main.attempts.prepare", "driver.main.restarted.prepare"]
