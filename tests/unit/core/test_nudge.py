from __future__ import annotations

from dataclasses import replace

import pytest

from agent import names
from agent.core.model import CallFact, Culprit, DeviceState, Kind, Verdict, WaitsFor
from agent.core.nudge import Cause, Event, Last, Memory, Pace, concerned, freed, ripens, waiting
from agent.core.pods import Pod
from tests.support.kube_records import GPU, NET, WALL, fact, outcome, pod, ref

OLD, NEW = "2026-11-30T14:20:00Z", "2026-11-30T14:26:30Z"  # WALL is 14:26:31


def event(cause: Cause, number: int = 1, *devices: str) -> Event:
    return Event(cause, GPU, number, WALL, frozenset(devices))


def refused(error: str = "device busy", *, code: int = 0) -> CallFact:
    return replace(fact(outcome("c", error=error)), code=code)


def prepared(*devices: str) -> CallFact:
    return fact(replace(outcome("c", DeviceState.PREPARED), devices=devices))


def known(*facts: CallFact) -> tuple[Last, ...]:
    memory = Memory()
    for one in facts:
        memory.note(one)
    return memory.of(GPU, "ns", ["c"])


def test_the_annotation_says_cause_and_time() -> None:
    assert event(Cause.DRIVER_BACK).text == "driver-back@2026-11-30T14:26:31.250000Z"


def test_the_last_word_about_a_claim_counts() -> None:
    memory = Memory()
    memory.note(refused("device busy"))
    assert memory.of(GPU, "ns", ["c"]) == (Last(ref(), False, waits=WaitsFor.DEVICE),)
    assert memory.of(NET, "ns", ["c"]) == memory.of(GPU, "ns", ["d"]) == ()
    waits = Verdict(Kind.TRANSIENT, Culprit.CLAIM, "r", waits_for=WaitsFor.LOCK)
    memory.note(fact(outcome("c", verdict=waits, error="hands full")))
    assert memory.of(GPU, "ns", ["c"]) == (Last(ref(), False, waits=WaitsFor.LOCK),)
    assert memory.failed(GPU)
    assert not memory.failed(GPU, broke=True)
    memory.note(refused("no answer", code=14))
    assert memory.failed(GPU, broke=True)
    memory.note(prepared("gpu-0"))
    assert not memory.failed(GPU)
    assert memory.drop(GPU, ["uid-c", "uid-unknown"]) == {"gpu-0"}
    assert memory.of(GPU, "ns", ["c"]) == ()


def test_the_oldest_words_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.core.nudge.LIMIT", 2)
    memory = Memory()
    for name in ("a", "b", "c"):
        memory.note(fact(outcome(name)))
    assert not memory.of(GPU, "ns", ["a"])
    assert len(memory.of(GPU, "ns", ["b", "c"])) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Running"},
        {"started": True},
        {"sandboxed": True},
        {"deleting": True},
        {"static": True},
        {"claims": ()},
    ],
)
def test_only_a_pod_that_may_wait_for_devices(change: dict[str, object]) -> None:
    assert waiting(pod())
    assert not waiting(pod(**change))
    assert not concerned(event(Cause.DRIVER_BACK), pod(**change), ())


@pytest.mark.parametrize(
    ("cause", "facts", "created", "expected"),
    [
        (Cause.AGENT_STARTED, (), OLD, True),
        (Cause.AGENT_STARTED, (), "", True),
        (Cause.AGENT_STARTED, (), "2026-11-30T14:26:32Z", False),
        (Cause.AGENT_STARTED, (refused(),), OLD, False),  # its call came through us
        (Cause.DRIVER_REGISTERED, (), NEW, True),
        (Cause.DRIVER_REGISTERED, (), "2026-11-30T14:26:32Z", False),  # came later
        (Cause.DRIVER_BACK, (refused(),), OLD, True),
        (Cause.DRIVER_BACK, (prepared(),), OLD, False),
        (Cause.FAULT_ENDED, (refused(code=14),), OLD, True),
        (Cause.FAULT_ENDED, (refused(code=0),), OLD, False),
        (Cause.FAULT_ENDED, (), OLD, False),
        (Cause.CLAIM_UNPREPARED, (refused(),), OLD, True),
        (Cause.CLAIM_UNPREPARED, (), OLD, False),
    ],
)
def test_who_is_concerned(
    cause: Cause, facts: tuple[CallFact, ...], created: str, expected: bool
) -> None:
    made = pod(created=created)
    assert concerned(event(cause), made, known(*facts)) is expected


def test_after_the_start_a_pod_must_have_waited_for_a_while() -> None:
    young, old = pod(created=NEW), pod(created=OLD)
    started = event(Cause.AGENT_STARTED)
    assert ripens(started, young, 10.0) == pytest.approx(WALL + 8.75)
    assert ripens(started, old, 10.0) < WALL
    assert ripens(event(Cause.DRIVER_BACK), young, 10.0) == WALL


@pytest.mark.parametrize(
    ("error", "given_back", "expected"),
    [
        ("anything", ("gpu-0",), True),  # the same device
        ("anything", ("gpu-1",), False),
        ("anything", (), False),
        ("device gpu-0 is in use by claim x", (), True),  # an earlier agent saw the prepare
        ("device gpu-0 is in use by claim x", ("gpu-1",), False),
        ("timed out waiting for lock", ("gpu-1",), True),
    ],
)
def test_what_an_unprepare_gives_back(
    error: str, given_back: tuple[str, ...], expected: bool
) -> None:
    gone = event(Cause.CLAIM_UNPREPARED, 1, *given_back)
    assert freed(gone, known(refused(error)), frozenset({"gpu-0"})) is expected


def test_a_pod_is_not_nudged_too_often_nor_twice_for_one_event() -> None:
    pace, made = Pace(10.0), pod()
    assert pace.due(made, 100.0, WALL) == 100.0
    assert not pace.had(made, event(Cause.DRIVER_BACK, 1))
    pace.take(made, event(Cause.DRIVER_BACK, 1), 100.0)
    assert pace.had(made, event(Cause.DRIVER_BACK, 1))
    assert pace.due(made, 103.0, WALL) == 110.0
    assert not pace.had(made, event(Cause.DRIVER_BACK, 2))


@pytest.mark.parametrize(
    ("written", "due"),
    [
        ("agent-started@2026-11-30T14:26:27.250000Z", 106.0),  # four seconds ago
        ("agent-started@2026-11-30T14:20:00Z", 100.0),
        ("agent-started@2027-01-01T00:00:00Z", 100.0),  # from a clock that was wrong
        ("nonsense", 100.0),
    ],
)
def test_an_earlier_agents_nudge_counts(written: str, due: float) -> None:
    made: Pod = pod(annotations=((names.ANNOTATION_NUDGE, written),))
    assert Pace(10.0).due(made, 100.0, WALL) == pytest.approx(due)


def test_the_paces_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.core.nudge.LIMIT", 1)
    pace = Pace(10.0)
    for name in ("a", "b"):
        pace.take(pod(uid=name), event(Cause.DRIVER_BACK), 1.0)
    assert pace.due(pod(uid="a"), 2.0, WALL) == 2.0


def test_a_nudge_that_was_not_written_does_not_count() -> None:
    pace, made = Pace(10.0), pod()
    pace.take(made, event(Cause.DRIVER_BACK), 1.0)
    pace.give_back(made, event(Cause.DRIVER_BACK))
    assert not pace.had(made, event(Cause.DRIVER_BACK))
    assert pace.due(made, 2.0, WALL) == 2.0
