import re

import pytest

from agent.core.patterns import MAX_CHOICES, problem


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
        "(?<![a-z])busy(?![a-z-])",
        "(?-i:EBUSY)|busy",
        "gone(?#[ with | and ()|lost",
        "(?:car|gpu|nic)[^;]{0,60}(?:is|has|was) [^;]{0,60}(?:gone|lost|dead)",
    ],
)
def test_good_patterns(pattern: str) -> None:
    assert problem(pattern) is None


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
        ("(?=ab)b", "one character"),
        ("(?<!a{1,2})b", "not a regular expression"),
        (".{0,100}x.{0,100}", "ways to match"),
        ("[ab]{0,4000}" * 60, "leave more than 1000000000 ways"),
        ("[[:alpha:]]x", "not a regular expression: Possible nested set"),
        ("(?x)a b # [", "flags for the whole pattern"),
        ("(?s)a.b|c.d", "flags for the whole pattern"),
        ("(?x: a # [\n)", "not allowed"),
        ("(?P<card>a)", "only `device`"),
        ("a" * 4001, "longer"),
        ("a{1,99999999999999999999}", "not a regular expression"),
    ],
)
def test_refused_patterns(pattern: str, words: str) -> None:
    assert words in str(problem(pattern))


def test_only_alternatives_that_can_begin_alike_add_up() -> None:
    one = "x[^;]{0,40}"
    assert problem(f"(?:a{one}y|b{one}y|c{one}y) [^;]{{0,60}}z") is None
    # Each begins with anything: all of them may match at one point.
    assert "ways" in str(problem(f"(?:.{one}y|.{one}y|.{one}y) [^;]{{0,60}}z"))


def test_the_work_of_the_dearest_allowed_pattern_is_linear_in_the_text() -> None:
    """Counted, not timed: no start of the matcher looks at more than MAX_CHOICES ways."""
    pattern = "a[ab]{0,63}b[ab]{0,63}c"
    assert problem(pattern) is None
    assert MAX_CHOICES == 64 * 64
    text = "ab" * 300
    visited = 0
    for start in range(len(text)):
        if text[start] != "a":
            continue
        for first in range(min(64, len(text) - start - 1)):
            at = start + 1 + first
            visited += min(64, max(0, len(text) - at - 1)) if text[at] == "b" else 0
    assert visited <= len(text) * MAX_CHOICES
    assert re.search(pattern, text) is None
