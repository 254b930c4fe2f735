from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.history import Limits
from agent.core.pods import Owner
from agent.report import policy as module
from agent.report.policy import Rules
from agent.settings.model import NodeIdentity
from tests.support.kube_bench import config
from tests.support.kube_records import BUSY, GPU, NET, PARAMETERS, claim, fact, outcome, pod, record

IDENTITY = NodeIdentity(node_name="node-a", only_driver="x")


def test_each_driver_has_its_own_mode() -> None:
    settings = config("observe", drivers={"perDriver": {NET: {"mode": "enforce"}}})
    rules = Rules(settings, IDENTITY)
    claims = [claim("c"), claim("n", "eth0", driver=NET)]
    gpu, net = fact(outcome("c")), fact(outcome("n"), driver=NET)
    soft = fact(outcome("n", verdict=BUSY), driver=NET)
    for facts, mode in (
        ((gpu,), "observe"), ((net,), "enforce"), ((gpu, net), "enforce"),
        ((gpu, soft), "observe"), ((), "observe"),
    ):  # fmt: skip
        assert rules.mode(record(claims, *facts)) == mode
    policy = rules.policy(record(claims, gpu, net))
    assert policy.acts(NET, PARAMETERS)
    assert not policy.acts(GPU, PARAMETERS)
    assert policy.acts(GPU, replace(PARAMETERS, explicit=True))
    assert policy.modes == {NET: "enforce"}


def test_escalation_limits_come_from_the_settings() -> None:
    rules = Rules(config(report={"escalateAfterAttempts": 3, "escalateAfter": 60.0}), IDENTITY)
    assert rules.limits == Limits(3, 60.0)
    rules.update(config(report={"escalateAfterAttempts": 4}))
    assert rules.limits == Limits(4, 600.0)


def test_settings_reach_the_policy() -> None:
    rules = Rules(config("enforce", outcome={"claim": "Report"}), IDENTITY)
    made = rules.policy(record([claim()], fact(outcome())))
    assert (made.mode, made.claim, made.parameters) == ("enforce", "Report", "Default")
    assert (made.fail_delay, made.min_between_failures) == (0.05, 0.3)
    assert made.kubelet_versions == ("1.34", "1.37")
    assert made.only_driver == "x"
    assert GPU not in made.only_driver


def test_last_failed_pod_of_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OWNERS", 2)
    rules = Rules(config(), IDENTITY)
    bare = pod()
    rules.set_owner_failed(bare, 5.0)
    assert rules.owner_failed_at(bare) is None
    owned = [pod(owner=Owner("Job", uid, uid)) for uid in ("a", "b", "c")]
    for i, each in enumerate(owned):
        rules.set_owner_failed(each, float(i))
    assert [rules.owner_failed_at(each) for each in owned] == [None, 1.0, 2.0]
    rules.set_owner_failed(owned[2], None)
    assert rules.owner_failed_at(owned[2]) is None
