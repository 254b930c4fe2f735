from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.commands.pod_events import Said, failures_in
from agent.core.model import Surface

KUBELET = "Failed to prepare dynamic resources: prepare dynamic resources: "


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            KUBELET + "NodePrepareResources failed for ResourceClaim perm-j99rm: error applying "
            "config: invalid sharing strategy",
            Said("error applying config: invalid sharing strategy", "perm-j99rm"),
        ),
        (
            KUBELET + "NodePrepareResources failed for ResourceClaim c: dra-agent: "
            "gpu.example.com: permanent (device gpu-1): requested: not allocatable",
            Said("requested: not allocatable", "c", "gpu.example.com"),
        ),
        (
            KUBELET + "NodePrepareResources failed for ResourceClaim c: dra-agent: "
            "gpu.example.com: not asked, because of d",
            Said("not asked, because of d", "c", "gpu.example.com"),
        ),
        (
            KUBELET + "NodePrepareResources: rpc error: code = DeadlineExceeded desc = late",
            Said("late", code=4),
        ),
        (
            KUBELET + "NodePrepareResources: rpc error: code = Unavailable desc = dra-agent: "
            "a.b: transient (driver): connect",
            Said("connect", driver="a.b", code=14),
        ),
        (KUBELET + "something else", Said("something else")),
        ("", None),
    ],
)
def test_forms(message: str, said: Said | None) -> None:
    assert failures_in(message) == ([said] if said else [])


def test_failure_for_the_rules() -> None:
    assert Said("x").failure("d").surface is Surface.CLAIM_ERROR
    made = Said("x", code=14).failure("d")
    assert (made.surface, made.code, made.driver) == (Surface.CALL_ERROR, 14, "d")


@given(st.text())
def test_any_event(text: str) -> None:
    failures_in(text)
    failures_in("NodePrepareResources: rpc error: code = " + text)
