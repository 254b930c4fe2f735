import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.settings.durations import Duration, parse, render


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("3s", 3),
        ("1.5s", 1.5),
        ("2m", 120),
        ("1h", 3600),
        ("0", 0),
        (0, 0),
        ("0s", 0),
    ],
)
def test_parse(text: object, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        5,
        1.5,
        "5 minutes",
        "-3s",
        "3 s",
        "3S",
        "1h30m",
        "1e3s",
        ".5s",
        "٣s",
        None,
        True,
        False,
        [],
        "9" * 20 + "h",
        "3s\n",
    ],
)
def test_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 250ms"):
        parse(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "250ms"),
        (1.2, "1.2s"),
        (3.0, "3s"),
        (60.0, "1m"),
        (90.0, "90s"),
        (3600.0, "1h"),
        (0.0, "0"),
    ],
)
def test_render(seconds: float, text: str) -> None:
    assert render(seconds) == text


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_rendered_is_read_back(microseconds: int) -> None:
    seconds = Duration(round(microseconds / 1e6, 6))
    assert parse(render(seconds)) == pytest.approx(seconds, abs=1e-6)
