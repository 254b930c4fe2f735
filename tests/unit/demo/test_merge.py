from __future__ import annotations

from agent.demo.merge import strategic_merge


def test_conditions_merge_by_type_and_others_stay() -> None:
    base = {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "B"}]}
    patch = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "C", "status": "True"}]}
    assert strategic_merge(base, patch) == {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "x"},
            {"type": "B"},
            {"type": "C", "status": "True"},
        ]
    }
    assert base["conditions"][0]["status"] == "False"


def test_null_removes_and_other_lists_are_replaced() -> None:
    base = {"a": {"x": 1, "y": 2}, "containerStatuses": [{"name": "m"}], "gone": 1}
    patch = {"a": {"x": None, "z": 3}, "containerStatuses": [{"name": "n"}], "gone": None}
    assert strategic_merge(base, patch) == {
        "a": {"y": 2, "z": 3},
        "containerStatuses": [{"name": "n"}],
    }


def test_an_item_can_be_deleted_and_nulls_never_get_in() -> None:
    patch = {"conditions": [{"type": "A", "$patch": "delete"}], "new": {"deep": {"x": None}}}
    assert strategic_merge({"conditions": [{"type": "A"}, {"type": "B"}]}, patch) == {
        "conditions": [{"type": "B"}],
        "new": {"deep": {}},
    }
