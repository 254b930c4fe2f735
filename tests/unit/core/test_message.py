from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.context import Blocker, Context, SliceDevice
from agent.core.history import Limits
from agent.core.message import message, parameters
from agent.core.model import Culprit, Device, Kind, Verdict
from agent.core.record import PodRecord, Widespread, build
from tests.support.kube_records import GPU, PARAMETERS, claim, fact, histories, outcome, record, ref

STRANGE = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "default")
KEY = (GPU, "uid-c")


@pytest.mark.parametrize(
    ("source", "the_class", "wanted"),
    [
        ("", "", ""),
        ("claim", "shared", "parameters of the claim"),
        ("class", "shared", "parameters of DeviceClass shared"),
        ("class", "", "parameters of the DeviceClass"),
        ("claim,class", "shared", "parameters of the claim and of DeviceClass shared"),
    ],
)
def test_whose_parameters(source: str, the_class: str, wanted: str) -> None:
    device = Device(ref(), "r", GPU, "p", "d", parameters_from=source, device_class=the_class)
    assert parameters(device) == wanted


def said(made: PodRecord) -> str:
    return message(made, "", 4096)


def test_parameters_of_a_class_are_the_classes_fault() -> None:
    one = claim()
    device = replace(one.devices[0], parameters_from="class", device_class="shared")
    made = record([replace(one, devices=(device,))], fact(outcome()))
    assert "At fault: parameters of DeviceClass shared." in said(made)
    other = replace(PARAMETERS, culprit=Culprit.DEVICE)
    made = record([replace(one, devices=(device,))], fact(outcome(verdict=other)))
    assert "At fault" not in said(made)


def test_blocker_holders_and_taints() -> None:
    place = (GPU, "node-a", "gpu-0")
    found = Context(
        (SliceDevice(*place, taints=("hw=bad:NoExecute",)),),
        {KEY: Blocker(ref("x"), "q", "unprepare", 7.0)},
        {place: (ref("x"),)},
    )
    made = build([claim()], histories(fact(outcome())), context=found)
    assert "Blocked by claim x (pod q), unprepare in flight for 7 s." in said(made)
    assert "Tainted: hw=bad:NoExecute." in said(made)
    assert "Also allocated" not in said(made)
    made = build([claim()], histories(fact(outcome())), context=replace(found, blockers={}))
    assert "Also allocated to: x." in said(made)


def test_no_longer_normal() -> None:
    facts = [fact(outcome(verdict=STRANGE), replied_at=120.0 * i) for i in range(6)]
    made = build([claim()], histories(*facts), limits=Limits(6, 600.0))
    assert made.escalated == {KEY}
    assert "No longer normal: the same failure for 10 min, 6 attempts." in said(made)
    early = build([claim()], histories(*facts[:5]), limits=Limits(6, 600.0))
    assert "No longer normal" not in said(early)


def test_suspects() -> None:
    made = record([claim()], fact(outcome(verdict=STRANGE)))
    device = replace(made, devices=(replace(made.devices[0], suspect="device"),))
    assert "Suspect: gpu-0, which failed for other claims too." in said(device)
    spread = ((KEY, Widespread("driver", "default", 3, 0)),)
    text = said(replace(made, widespread=spread))
    assert "Suspect: 3 claims failed by rule default within 10 minutes: the driver or" in text


def test_limit_holds_with_everything_said() -> None:
    claims = [claim(f"c{i}", *(f"gpu-{i}-{j}" for j in range(20))) for i in range(20)]
    facts = [fact(outcome(c.name, error="x" * 3000)) for c in claims]
    blockers = {(GPU, c.uid): Blocker(ref("z" * 200)) for c in claims}
    made = build(claims, histories(*facts), context=Context(blockers=blockers))
    assert len(message(made, "not failed: because", 1024).encode()) <= 1024
    assert message(made, "not failed: because", 1024).endswith("Pod not failed: because.")
