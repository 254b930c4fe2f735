"""What may differ is wide enough for what was seen and narrow enough to hide no fault."""

from __future__ import annotations

from typing import Any

import pytest

from .compare import differ

NO_DEVICES = "NodePrepareResources: rpc error: code = Unavailable desc = dra-agent: "
NUMBER, OK = "registration.main.number", "calls.main.NodePrepareResources.OK"
FAILED = "events.a.FailedPrepareDynamicResources"
KEPT, WIPES = "slices.main.kept", "slices.main.wipes"
HEALTH = "pods.a.health"
HEALTHY, UNKNOWN, HOT = [["Healthy", ""]], [["Unknown", ""]], [["Unhealthy", "too hot"]]
Sides = tuple[str, str, str, Any, Any]
# Run, scenario, path, directly, through the agent.
FAULTS: list[Sides] = [
    ("overlay", "driver-away", "seconds.wipe", 30.0, 3.0),
    ("overlay", "driver-away", "seconds.wipe", 30.0, 49.0),
    ("overlay", "deleted-while-failing", "seconds.unprepare", 0.1, 5.5),
    ("overlay", "healthy", NUMBER, 1, 60),
    ("intake", "driver-restarts", NUMBER, 2, 60),
    ("overlay", "healthy", "registration.main.timeouts", 0, 3),
    ("overlay", "healthy", "events.a.DevicePrepareFailed", None, ["x"]),
    ("overlay", "healthy", "pods.a.conditions", ["Ready"], ["Ready", "dra-agent.io/X"]),
    ("overlay", "unknown-then-works", OK, 2, 500),
    ("overlay", "unknown-then-works", "driver.main.attempts.prepare", 2, 1500),
    ("overlay", "fails-then-works", OK, 3, None),
    ("overlay", "driver-restarts", "bypassed.main", 0, 1),
    ("overlay", "agent-restarts", "bypassed.main", 0, 1),
    ("overlay", "kubelet-restarts", "bypassed.main", 0, 1),
    ("overlay", "notify-fails-for-a-minute", WIPES, 0, 1),
    ("overlay", "notify-fails-for-a-minute", KEPT, True, False),
    ("overlay", "unprepare-fails-across-restart", "driver.main.calls.a", ["x"], ["y"]),
    ("overlay", "unprepare-fails-across-restart", OK, 1, 2),
    ("overlay", "driver-left", FAILED, ["x is not registered"], ["anything at all"]),
    ("intake", "created-while-agent-is-down", FAILED, None, ["anything at all"]),
    ("overlay", "preparing-when-agent-is-killed", FAILED, None, ["anything at all"]),
    ("overlay", "health-v1-dropped", HEALTH, [HEALTHY, HOT, HEALTHY], [HEALTHY]),
    ("overlay", "health-driver-restarts", HEALTH, [HEALTHY, UNKNOWN, HEALTHY], [HEALTHY]),
    ("intake-1.34", "health-retired", HEALTH, [HEALTHY], [HEALTHY, UNKNOWN, HEALTHY]),
    ("intake", "health-both", "driver.main.connections", 1, 2),
]
FINE: list[Sides] = [
    ("overlay", "driver-away", "seconds.wipe", 30.3, 40.8),
    ("overlay", "deleted-while-failing", "seconds.unprepare", 1.6, 1.2),
    ("overlay", "deleted-while-failing", "seconds.delete", 4.3, 7.3),
    ("overlay", "healthy", NUMBER, 1, 3),
    ("overlay", "fails-then-works", OK, 3, 1),
    ("overlay", "call-unavailable", "driver.main.attempts.prepare", 1, 16),
    ("overlay", "deleted-while-failing", OK, 5, 3),
    ("overlay", "notify-fails-for-a-minute", WIPES, 1, 0),
    ("overlay", "notify-fails-for-a-minute", KEPT, False, True),
    ("overlay", "driver-killed-briefly", "bypassed.main", 0, 1),
    ("intake", "driver-killed-briefly", "calls.main.NodePrepareResources.Unavailable", 1, None),
    (
        "overlay",
        "driver-left",
        FAILED,
        ["x is not registered"],
        [f"{NO_DEVICES}x: transient (driver): no instance of the driver is connected"],
    ),
    ("intake", "created-while-agent-is-down", FAILED, None, ["x is not registered"]),
    ("overlay", "health-v1-dropped", HEALTH, [HEALTHY, HOT], [HEALTHY, UNKNOWN, HOT]),
    ("overlay-1.34", "health-retired", HEALTH, [HEALTHY], [HEALTHY, UNKNOWN, HEALTHY]),
]


def is_red(sides: Sides) -> bool:
    run, scenario, path, direct, through = sides
    facts = [{path: value} if value is not None else {} for value in (direct, through)]
    red, _ = differ.differences(*facts, run=run, scenario=scenario)
    return bool(red)


@pytest.mark.parametrize("sides", FAULTS, ids=lambda sides: f"{sides[1]}-{sides[2]}")
def test_a_fault_is_not_an_allowed_difference(sides: Sides) -> None:
    assert is_red(sides)


@pytest.mark.parametrize("sides", FINE, ids=lambda sides: f"{sides[1]}-{sides[2]}")
def test_what_was_seen_of_a_sound_agent_is_allowed(sides: Sides) -> None:
    assert not is_red(sides)


def test_patterns_that_nothing_needed_are_found() -> None:
    (entry,) = (each for each in differ.allowed() if "two-claims" in each.scenarios)
    wide = differ.Allowed("pods.*", "own", "", scenarios=("one", "two-*", "three"))
    seen = differ.Difference("pods.a", [], ["dra-agent.io/x"], wide, "two-claims")
    done = [("overlay", name) for name in ("one", "two-claims")]
    assert differ.too_wide(done, [seen]) == ["pods.*, own: one"]
    assert entry in differ.unused([("overlay-1.34", "two-claims")], [seen])


def test_partly_allows_chance_and_no_more() -> None:
    def checkpoint(good: list[str], bad: list[str], pods: int = 1) -> list[object]:
        return [{"claim": "t0", "pods": pods, "devices": {"main": good, "bad": bad}}]

    def fine(through: list[object]) -> bool:
        direct = checkpoint(["gpu-0"], [])
        return differ.check("partly", differ.Difference("checkpoint.failing", direct, through))

    assert fine(checkpoint([], []))
    assert not fine(checkpoint(["gpu-1"], []))
    assert not fine(checkpoint([], [], pods=2))
    assert not fine([])


def test_but_leaves_out_what_holds_its_words() -> None:
    def fine(direct: list[str] | None, through: list[str] | None) -> bool:
        return differ.check("but too slow", differ.Difference("events.a.X", direct, through))

    ours = "dra-agent: gpu: transient (driver): broken"
    assert fine(["broken", "x: too slow"], [ours])
    assert fine(None, ["x: too slow"])
    assert not fine(["broken"], ["x: too slow"])
    assert not fine(["broken"], [ours, "other"])


def test_entries_that_nothing_needed_are_found() -> None:
    (entry,) = (each for each in differ.allowed() if each.path == "seconds.wipe")
    seen = differ.Difference("seconds.wipe", 30.0, 40.0, entry)
    assert entry in differ.unused([("overlay", "driver-away")], [])
    assert entry not in differ.unused([("overlay", "driver-away")], [seen])
    (entry,) = (each for each in differ.allowed() if each.path == "slices.*.kept")
    assert entry not in differ.unused([("overlay", "driver-away")], [])
    assert entry not in differ.unused([("intake", "notify-fails-for-a-minute")], [])
    assert entry in differ.unused([("overlay", "notify-fails-for-a-minute")], [])


def test_doubled_allows_a_device_twice_and_no_other() -> None:
    def checkpoint(*pools: str) -> list[object]:
        devices = [{"PoolName": pool} for pool in pools]
        return [{"claim": "t0", "pods": 1, "devices": {"main": devices}}]

    def fine(through: list[object]) -> bool:
        direct = checkpoint("one")
        return differ.check("doubled", differ.Difference("checkpoint.running", direct, through))

    assert fine(checkpoint("one", "one"))
    assert not fine(checkpoint("one", "two"))
    assert not fine(checkpoint())
    assert not fine([])
