from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.context import (
    NOTHING,
    Blocker,
    Context,
    SliceDevice,
    TaintRule,
    waits_for,
)
from agent.core.model import Failure, Surface, WaitsFor
from agent.settings.rulefiles import load_rules
from agent.settings.sections import Rules
from tests.support.kube_records import GPU, ref


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("requested device gpu-0 is already allocated to different claim u2", WaitsFor.DEVICE),
        ("error enabling MIG mode for device gpu-0: In use by another client", WaitsFor.DEVICE),
        ("bind: device or resource busy", WaitsFor.DEVICE),
        ("error acquiring cplock: timeout acquiring lock (/a/cp.lock)", WaitsFor.LOCK),
        ("error acquiring lock (/a/pu.lock): context canceled", WaitsFor.LOCK),
        ("lock file: timed out", WaitsFor.LOCK),
        ("umount: target is busy", None),
        ("invalid sharing strategy", None),
        ("clock skew: timeout", None),
        ("", None),
    ],
)
def test_what_a_text_waits_for(text: str, wanted: WaitsFor | None) -> None:
    assert waits_for(text) is wanted
    assert waits_for("x" * 100_000 + " " + text) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("device dev-1 is held by claim other/claim-9 which is terminating", WaitsFor.DEVICE),
        ("cannot configure VF 2: VF is still attached to pod prod/cache-0", WaitsFor.DEVICE),
        ("requested device d is already allocated to different claim u2", WaitsFor.DEVICE),
        ("unprepare of claim u1 is still in progress", WaitsFor.DEVICE),
        ("could not obtain the global lock within 10s", WaitsFor.LOCK),
        ("decoder0.0 is locked by another transaction", WaitsFor.LOCK),
        ("timeout acquiring lock", WaitsFor.LOCK),
        ("database is locked", WaitsFor.LOCK),
    ],
)
def test_the_rule_that_decided_knows_what_is_waited_for(text: str, wanted: WaitsFor) -> None:
    failure = Failure("d.example.com", "prepare", Surface.CLAIM_ERROR, text)
    assert waits_for(text, load_rules(Rules()).classify(failure)) is wanted
    marked = replace(failure, text=f"{text} [dra-agent.io transient claim=u-1]", claim="u-1")
    verdict = load_rules(Rules()).classify(marked)
    assert verdict.rule == "driver-marker"
    assert waits_for(text, verdict) is wanted


@given(st.text())
def test_any_text(text: str) -> None:
    waits_for(text)


def test_blocker_reads_well() -> None:
    assert str(Blocker(ref("a"), "p", "unprepare", 12.4)) == (
        "claim a (pod p), unprepare in flight for 12 s"
    )
    assert str(Blocker(ref("a"))) == "claim a, which holds the device"


def test_taints() -> None:
    one = SliceDevice(GPU, "node-a", "gpu-0", taints=("k:NoSchedule",))
    assert Context((one,)).taints(one.place) == ("k:NoSchedule",)
    assert NOTHING.taints(one.place) == ()


def test_an_admins_taints_are_added_once() -> None:
    one = SliceDevice(GPU, "node-a", "gpu-0", taints=("k:NoSchedule",))
    rules = (
        TaintRule((GPU, "node-a", "gpu-0"), "mine:NoExecute"),
        TaintRule((GPU, "", ""), "k:NoSchedule"),
        TaintRule(("", "", ""), "all:None"),
        TaintRule(("", "node-b", ""), "other-pool:None"),
        TaintRule(("", "", "gpu-1"), "other-device:None"),
        TaintRule(("nic.example.com", "", ""), "other-driver:None"),
    )
    found = Context((one,), taint_rules=rules)
    assert found.taints(one.place) == ("k:NoSchedule", "mine:NoExecute", "all:None")
    assert found.taints((GPU, "node-a", "gpu-9")) == ("k:NoSchedule", "all:None")
