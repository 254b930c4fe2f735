from __future__ import annotations

from agent.core.pods import Condition
from tests.support.kube_records import GPU, NET, claim, pod


def test_lookups() -> None:
    ours = Condition("dra-agent.io/DevicesPrepared", "False")
    made = pod(conditions=(ours,), annotations=(("dra-agent.io/nudge", "1"),))
    assert made.condition("dra-agent.io/DevicesPrepared") is ours
    assert made.condition("x") is None
    assert made.annotation("dra-agent.io/nudge") == "1"
    assert made.annotation("x") == ""


def test_ended() -> None:
    assert [pod(phase=p).ended for p in ("Pending", "Running", "Failed", "Succeeded")] == [
        False, False, True, True,
    ]  # fmt: skip


def test_claim_knows_its_drivers_and_ref() -> None:
    made = claim("c", "gpu-0", f"{NET}/eth0")
    assert made.drivers == {GPU, NET}
    assert (made.ref.namespace, made.ref.uid, made.ref.name) == ("ns", "uid-c", "c")
