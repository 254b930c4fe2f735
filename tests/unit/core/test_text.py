import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import text

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Lone surrogates included."""


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("a\nb", "a; b"),
        ("a\r\n\r\n  b\n", "a; b"),
        ("a \t  b", "a b"),
        ("a\u2028b\u2029c\x85d", "a; b; c; d"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 nul\x00", "bell\\x07 nul\\x00"),
        ("user\u202eresu", "userresu"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tag\U000e0041", "tag"),
        ("bad\ud800end", "bad\ufffdend"),
        ("", ""),
        ("\n\n", ""),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert text.clean(raw) == shown


@given(ANY_TEXT, st.integers(min_value=0, max_value=64))
def test_clean_is_one_safe_bounded_line(raw: str, limit: int) -> None:
    line = text.clean(raw, limit)
    assert len(line.encode()) <= limit  # encode() fails on surrogates
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in line)
    assert not set(line) & set("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2069")


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing(raw: str) -> None:
    once = text.clean(raw)
    assert text.clean(once) == once


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "\n ",
        "\x1b[",
        "\x1b[1;",
        "\x1b]",
        "\x1b ",
        "\x1b[ ",
        " ",
        "\x00",
        "\ud800",
        "\u202ea",
        "a b",
        "é",
    ],
)
def test_a_megabyte_is_quick_whatever_it_holds(unit: str) -> None:
    """Far above the milliseconds it takes, far below what anything quadratic would take."""
    raw = "x" + (unit * (1 << 20))[: 1 << 20] + "x"
    start = time.thread_time()
    text.clean(raw)
    assert time.thread_time() - start < 5


def test_a_cut_is_marked_and_on_a_border() -> None:
    assert text.cut("ééééé", 8) == "éé…"
    assert text.cut("ééééé", 10) == "ééééé"
    assert text.cut("abcdef", 2) == "ab"
    assert text.clean("x" * 2000).endswith("x…")
    assert len(text.clean("x" * 2000).encode()) == text.DEFAULT_LIMIT


def test_ends_keeps_start_and_end() -> None:
    assert text.ends("abcdef", 3) == "abcdef"
    assert text.ends("abcdefg", 3) == "abc\nefg"


def test_quote_cannot_be_left() -> None:
    assert text.quote('a"b\nc') == '"a\'b; c"'
