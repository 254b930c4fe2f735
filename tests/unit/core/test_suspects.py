from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import suspects as module
from agent.core.model import Culprit, DeviceState, Kind, Verdict
from agent.core.record import PodRecord
from agent.core.suspects import Suspects
from tests.support.kube_records import (
    BUSY,
    GPU,
    PARAMETERS,
    claim,
    fact,
    outcome,
    record,
)

GONE = Verdict(Kind.PERMANENT, Culprit.DEVICE, "gone")
STRANGE = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "default")


def failed(name: str, *devices: str, verdict: Verdict = GONE, at: float = 0.0) -> PodRecord:
    return record([claim(name, *devices)], fact(outcome(name, verdict=verdict), replied_at=at))


def suspect(suspects: Suspects, made: PodRecord, now: float = 0.0) -> dict[str, str]:
    return {d.device.device: d.suspect for d in suspects.judge(made, now).devices}


def note(suspects: Suspects, *records: PodRecord, owner: str = "", now: float = 0.0) -> list[bool]:
    return [suspects.note(each, owner, now) for each in records]


def test_one_device_failing_for_two_claims_is_the_suspect() -> None:
    suspects = Suspects()
    first, second = failed("a", "gpu-0"), failed("b", "gpu-0")
    assert note(suspects, first) == [False]
    assert suspect(suspects, first) == {"gpu-0": ""}
    assert note(suspects, second, second) == [True, False], "news once"
    assert suspect(suspects, first) == suspect(suspects, second) == {"gpu-0": "device"}
    assert suspects.judge(first, 0.0).widespread == ()
    assert suspects.describe(0.0) == [
        {"suspect": "device", "driver": GPU, "pool": "node-a", "device": "gpu-0", "claims": 2}
    ]


def test_two_devices_by_the_same_rule_accuse_the_driver() -> None:
    suspects = Suspects()
    one, two = failed("a", "gpu-0"), failed("b", "gpu-1")
    assert note(suspects, one, two) == [False, True]
    judged = suspects.judge(one, 0.0)
    assert [d.suspect for d in judged.devices] == ["driver"]
    assert not judged.devices[0].at_fault
    ((key, spread),) = judged.widespread
    assert key == (GPU, "uid-a")
    assert str(spread) == (
        "2 claims, 2 devices failed by rule gone within 10 minutes: "
        "the driver or the node is suspected"
    )


def test_three_claims_accuse_the_driver_whatever_the_culprit() -> None:
    for verdict in (PARAMETERS, STRANGE):
        suspects = Suspects()
        records = [failed(name, "gpu-0", verdict=verdict) for name in "abc"]
        assert note(suspects, *records)[::2] == [False, True], verdict
        assert suspect(suspects, records[0]) == {"gpu-0": "driver"}


def test_any_number_of_claims_on_one_faulty_device_accuse_the_device() -> None:
    suspects = Suspects()
    records = [failed(name, "gpu-0") for name in "abcde"]
    assert note(suspects, *records) == [False, True, False, False, False]
    assert suspect(suspects, records[0]) == {"gpu-0": "device"}
    assert suspects.judge(records[0], 0.0).widespread == ()


def test_other_rules_drivers_and_later_failures_do_not_add_up() -> None:
    suspects = Suspects()
    note(suspects, failed("a"), failed("b", verdict=replace(GONE, rule="x")))
    late = failed("c", "gpu-1", at=module.WINDOW + 1)
    assert suspects.note(late, "", module.WINDOW + 1) is False
    assert suspects.judge(late, module.WINDOW + 1).widespread == ()
    other = record(
        [claim("d", "net/e0"), claim("e", "net/e1")],
        fact(outcome("d", verdict=GONE), driver="net"),
    )
    assert suspects.note(other, "", 0.0) is False


def test_one_owners_claims_say_the_same_thing_once() -> None:
    """A Job of many pods with wrong parameters must still be failed, not the driver accused."""
    suspects = Suspects()
    records = [failed(name, f"gpu-{name}", verdict=PARAMETERS) for name in "abcd"]
    assert note(suspects, *records, owner="job") == [False] * 4
    assert suspect(suspects, records[0]) == {"gpu-a": ""}
    # A device at fault is not in the template.
    assert note(suspects, failed("x", "g0"), failed("y", "g1"), owner="job") == [False, True]


def test_an_unknown_failure_of_one_owner_accuses_no_device() -> None:
    suspects = Suspects()
    one = failed("a", "gpu-0", verdict=STRANGE)
    note(suspects, one, failed("b", "gpu-0", verdict=STRANGE), owner="deployment")
    assert suspect(suspects, one) == {"gpu-0": ""}


def test_devices_that_only_fail_together_are_not_told_apart() -> None:
    suspects = Suspects()
    one = failed("a", "gpu-0", "gpu-1", verdict=STRANGE)
    note(suspects, one, failed("b", "gpu-0", "gpu-1", verdict=STRANGE))
    assert set(suspect(suspects, one).values()) == {""}
    suspects = Suspects()
    note(suspects, one, failed("b", "gpu-0", "gpu-2", verdict=STRANGE))
    assert suspect(suspects, one) == {"gpu-0": "device", "gpu-1": ""}


@pytest.mark.parametrize(
    "verdict",
    [BUSY, replace(GONE, culprit=Culprit.DRIVER), replace(GONE, culprit=Culprit.API)],
)
def test_passing_failures_and_other_culprits_accuse_nobody(verdict: Verdict) -> None:
    suspects = Suspects()
    records = [failed(name, f"gpu-{name}", verdict=verdict) for name in "abcd"]
    assert note(suspects, *records) == [False] * 4
    assert suspects.describe(0.0) == []


def test_a_good_prepare_clears() -> None:
    suspects = Suspects()
    one = failed("a", "gpu-0")
    note(suspects, one, failed("b", "gpu-0"))
    suspects.clear(record([claim("b", "gpu-0")], fact(outcome("b", DeviceState.PREPARED))))
    assert suspect(suspects, one) == {"gpu-0": ""}
    assert suspects.describe(0.0) == []


def test_the_same_claim_again_is_one_claim() -> None:
    suspects = Suspects()
    assert note(suspects, *[failed("a", at=float(t)) for t in range(9)]) == [False] * 9
    assert suspects.describe(0.0) == []


COPY = st.tuples(
    st.integers(0, 40), st.integers(0, 9), st.sampled_from([GONE, STRANGE, PARAMETERS, BUSY]),
    st.floats(0, 2000), st.sampled_from(["", "o1", "o2"]),
)  # fmt: skip


@given(st.lists(COPY, max_size=40))
def test_counts_are_those_of_the_window(calls: list[tuple[Any, ...]]) -> None:
    """Against a plain recount of all that was noted."""
    suspects, seen, now = Suspects(), {}, 0.0
    for number, device, verdict, pause, owner in calls:
        now += pause
        name = f"c{number}"
        made = failed(name, f"gpu-{device}", verdict=verdict, at=now)
        suspects.note(made, owner, now)
        if verdict is not BUSY:
            group = owner if verdict is PARAMETERS and owner else name
            seen[verdict.rule, name] = (now, group, device)
        recent = {k: v for k, v in seen.items() if v[0] > now - module.WINDOW}
        mine = [v for (rule, _), v in recent.items() if rule == verdict.rule]
        groups = len({v[2] if verdict is GONE else v[1] for v in mine})
        devices = len({v[2] for v in mine}) if verdict is GONE else 0
        wanted = verdict is not BUSY and (groups >= module.CLAIMS or devices >= module.DEVICES)
        assert bool(suspects.judge(made, now).widespread) == wanted


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_RULES", "MAX_CLAIMS", "MAX_DEVICES"):
        monkeypatch.setattr(module, name, 5)
    suspects = Suspects()
    for i in range(50):
        note(suspects, failed(f"c{i}", f"gpu-{i}", verdict=replace(GONE, rule=f"r{i % 9}")))
        note(suspects, failed(f"d{i}", "gpu-0", verdict=GONE))
    assert len(suspects._rules) <= 5
    assert len(suspects._devices) <= 5
    assert all(len(s.by_claim) <= 5 for s in suspects._rules.values())
