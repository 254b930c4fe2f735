from __future__ import annotations

import dataclasses

import pytest

from agent.core import model
from agent.core.model import ClaimRef, ClaimResult, Culprit, Failure, Kind, Surface, Verdict

CLAIM = ClaimRef("default", "uid", "name")


def test_all_values_are_frozen_and_slotted() -> None:
    kinds = [v for v in vars(model).values() if dataclasses.is_dataclass(v)]
    assert len(kinds) >= 8
    for kind in kinds:
        assert isinstance(kind, type)
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
        assert "__slots__" in vars(kind), kind


def test_a_value_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLAIM.uid = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "permanent"),
    [(Kind.PERMANENT, True), (Kind.TRANSIENT, False), (Kind.AMBIGUOUS, False)],
)
def test_only_permanent_is_permanent(kind: Kind, permanent: bool) -> None:
    assert Verdict(kind, Culprit.UNKNOWN, "r").permanent is permanent


def test_a_result_is_ok_unless_it_failed() -> None:
    failure = Failure("d", "prepare", Surface.CLAIM_ERROR, "text")
    assert ClaimResult(CLAIM, entry=b"").ok
    assert not ClaimResult(CLAIM, failure=failure).ok


def test_claims_can_be_keys() -> None:
    assert {CLAIM: 1}[ClaimRef("default", "uid", "name")] == 1
