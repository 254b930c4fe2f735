import re
import time

import pytest

from agent.core.model import Culprit, Failure, Kind, Surface, Transport
from agent.core.rules import MAX_CHOICES, Rule, pattern_problem

FAILURE = Failure("a.example", "prepare", Surface.CLAIM_ERROR, "text")


@pytest.mark.parametrize(
    "pattern",
    [
        "plain words",
        "a|b|c",
        "^only this$",
        "(?:x|y) [0-9]{1,6}",
        "on (?P<device>[^ ]{1,63}): .{0,60}gone",
        "colou?r",
        r"\bword\b",
        "[Cc]onfig",
    ],
)
def test_good_patterns(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "not a regular expression"),
        ("a*", "unbounded"),
        ("a+b", "unbounded"),
        (".{2,}", "unbounded"),
        ("(?:a{1,3}){1,3}", "several ways"),
        ("(?:a|ab){1,9}", "several ways"),
        ("(a)\\1", "not allowed"),
        ("(?=a)b", "not allowed"),
        ("(?<!a)b", "not allowed"),
        (".{0,100}x.{0,100}", "ways to match"),
        ("(?P<card>a)", "only `device`"),
        ("a" * 2001, "longer"),
        ("a{1,99999999999999999999}", "not a regular expression"),
    ],
)
def test_refused_patterns(pattern: str, words: str) -> None:
    assert words in str(pattern_problem(pattern))


def test_the_dearest_allowed_pattern_is_bearable() -> None:
    pattern = "a[ab]{0,63}b[ab]{0,63}c"
    assert pattern_problem(pattern) is None
    assert MAX_CHOICES == 64 * 64
    start = time.perf_counter()
    assert re.search(pattern, "ab" * 4096) is None
    assert time.perf_counter() - start < 5


def test_a_rule_admits_only_what_fits_all_it_says() -> None:
    rule = Rule("x", Kind.TRANSIENT, Culprit.DRIVER, operation="unprepare")
    assert not rule.admits(FAILURE)
    assert not Rule("x", Kind.TRANSIENT, Culprit.DRIVER, codes=frozenset({14})).admits(FAILURE)
    broken = frozenset({Transport.GONE})
    assert not Rule("x", Kind.TRANSIENT, Culprit.DRIVER, transports=broken).admits(FAILURE)
    other = Rule("x", Kind.TRANSIENT, Culprit.DRIVER, surface=Surface.CALL_ERROR)
    assert not other.admits(FAILURE)
    assert Rule("x", Kind.TRANSIENT, Culprit.DRIVER, surface=Surface.CLAIM_ERROR).admits(FAILURE)


def test_driver_globs() -> None:
    rule = Rule("x", Kind.TRANSIENT, Culprit.DRIVER, drivers=("*.example", "b"))
    assert rule.serves("a.example")
    assert rule.serves("b")
    assert not rule.serves("c")
    assert not rule.generic
    assert Rule("x", Kind.TRANSIENT, Culprit.DRIVER).generic
