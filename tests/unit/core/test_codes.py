from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import codes
from agent.core.rules import CODES


@pytest.mark.parametrize(
    "written",
    [
        *("DEADLINE_EXCEEDED", "DeadlineExceeded", "deadline exceeded", "deadline-exceeded"),
        *(" Deadline_Exceeded ", "4", "04", 4),
    ],
)
def test_one_code_in_all_spellings(written: object) -> None:
    assert codes.number(written) == 4


def test_both_spellings_of_cancelled() -> None:
    assert codes.number("Canceled") == codes.number("CANCELLED") == 1


@pytest.mark.parametrize("written", ["OK", "ok", 0, "0", "", " ", None])
def test_what_is_no_failure_is_none(written: object) -> None:
    assert codes.number(written) is None


@pytest.mark.parametrize("written", ["X", 17, -1, "17", "9" * 5000, "²", True, 4.0, [], {}])
def test_unknown_ones_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="unknown gRPC code"):
        codes.number(written)


@given(st.sampled_from(sorted(CODES)))
def test_every_name(name: str) -> None:
    assert codes.number(name) == codes.number(name.title().replace("_", "")) == CODES[name]
