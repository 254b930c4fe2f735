"""Patterns compiled late."""

from __future__ import annotations

import re

import pytest

from agent.core import clauses, masks
from agent.core.late import Late


def test_it_is_compiled_once_and_with_its_flags() -> None:
    late = Late("a+", re.IGNORECASE)
    assert late.regex.findall("bAa") == ["Aa"]
    assert late.regex is late.regex
    assert late.pattern == "a+"


def test_a_wrong_one_is_found_at_its_first_use() -> None:
    late = Late("(")
    with pytest.raises(re.error):
        _ = late.regex


@pytest.mark.parametrize("module", [clauses, masks])
def test_all_that_are_there_compile(module: object) -> None:
    found = [each for each in vars(module).values() if isinstance(each, Late)]
    assert found
    assert all(each.regex for each in found)
