import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.matcher import Matcher, alternatives, needs
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules

BUILTIN = load_rules(Rules()).rules


def test_capitals_do_not_matter() -> None:
    assert Matcher("No Such").search("NO such file", "no such file") is not None


def test_nothing_is_compiled_before_its_words_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    plain = re.compile

    def compile_(pattern: str, flags: int) -> re.Pattern[str]:
        compiled.append(pattern)
        return plain(pattern, flags)

    monkeypatch.setattr(re, "compile", compile_)
    matcher = Matcher("device lost|link down")
    assert matcher.search("all is well", "all is well") is None
    assert compiled == []
    for _ in range(2):
        assert matcher.search("the LINK DOWN", "the link down") is not None
        assert compiled == ["link down"]


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a|b", ["a", "b"]),
        ("(?:a|b)c|d", ["(?:a|b)c", "d"]),
        ("[|]|x", ["[|]", "x"]),
        ("[^]|]|x", ["[^]|]", "x"]),
        (r"a\|b|\(|c", [r"a\|b", r"\(", "c"]),
        (r"[\]|]|x", [r"[\]|]", "x"]),
        ("a(?#[ | ()|b", ["a(?#[ | ()", "b"]),
    ],
)
def test_alternatives(pattern: str, parts: list[str]) -> None:
    assert alternatives(pattern) == parts


def test_needed_words() -> None:
    assert needs("claim [^ ]{1,20} got replaced") == ((" got replaced",), ("claim ",))
    assert needs("(?:busy|held) by x") == ((" by x",), ("busy", "held"))
    assert needs("[0-9]{1,4}") == ()
    assert needs("x(?:abc)?y") == ()


@given(st.sampled_from([r for r in BUILTIN if r.text is not None]), st.data())
def test_a_matcher_finds_what_the_plain_pattern_finds(rule: object, data: st.DataObject) -> None:
    """Neither splitting nor the needed words lose a match."""
    matcher = rule.text  # type: ignore[attr-defined]
    words = data.draw(st.lists(st.sampled_from(SOME), max_size=6))
    said = " ".join(words)
    plain = re.compile(matcher.pattern, re.IGNORECASE | re.ASCII).search(said)
    assert (matcher.search(said, said.lower()) is not None) == (plain is not None)


SOME = sorted(
    {example for rule in BUILTIN for example in rule.examples}
    | {
        "device",
        "gpu",
        "busy",
        "İ",
        "ſtill",
        "\u212aernel",
        "not",
        "yet",
        "ready:",
        "lock",
        "[a,",
        "b]",
    }
)
