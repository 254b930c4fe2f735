from pathlib import Path

import pytest

from agent.core import patterns
from agent.core.model import Culprit, Failure, Kind, Surface, WaitsFor
from agent.errors import UserError
from agent.settings import document
from agent.settings.model import Rules
from agent.settings.rulefiles import builtin_text, load_rules, parse_rules, problems_of

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: FailureRules\nversion: 1\n"


def problems(text: str) -> list[str]:
    found: list[str] = []
    parse_rules(text, "f", 0, found)
    return found


def failure(text: str, driver: str = "a.example") -> Failure:
    return Failure(driver, "prepare", Surface.CLAIM_ERROR, text)


def test_a_rule_may_say_what_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "rules: [{id: a, verdict: transient, text: full, waitsFor: lock}]")
    rules = load_rules(Rules(files=[str(path)]))
    assert rules.classify(failure("hands full")).waits_for is WaitsFor.LOCK
    assert rules.classify(failure("who knows")).waits_for is None


def test_builtin_rules_load_without_a_problem() -> None:
    """Start relies on this: it does not try the patterns of the built-in file again."""
    assert problems(builtin_text()) == []


def test_start_tries_only_the_patterns_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(patterns, "problem", lambda pattern, *groups: tried.append(pattern))
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "rules: [{id: a, verdict: permanent, text: mine, also: too}]")
    assert len(load_rules(Rules(files=[str(path)])).rules) > 100
    assert tried == ["mine", "too"]


def test_both_readers_read_the_builtin_file_alike() -> None:
    assert document.read(builtin_text(), own=True) == document.read(builtin_text())
    assert len(load_rules(Rules()).rules) > 50


def test_a_user_s_rule_comes_before_the_builtin_ones(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        HEAD + "rules:\n- {id: mine, text: 'strict decoding error', verdict: transient, "
        "culprit: node, hint: x, singleAttempt: true}\n"
    )
    rules = load_rules(Rules(files=[str(path)]))
    verdict = rules.classify(failure("strict decoding error: y"))
    assert (verdict.rule, verdict.kind, verdict.culprit) == ("mine", Kind.TRANSIENT, Culprit.NODE)
    assert verdict.single_attempt
    assert rules.classify(failure("no space left on device")).rule == "node-disk-full"


def test_builtin_rules_can_be_left_out() -> None:
    assert load_rules(Rules(builtin=False)).rules == ()


def test_packs_hold_for_their_drivers(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        HEAD + "packs:\n- name: p\n  drivers: ['*.example']\n  rules:\n"
        "  - {id: mine, text: 'card (?P<device>[a-z]{1,9}) broke', verdict: permanent, "
        "culprit: device}\n"
    )
    rules = load_rules(Rules(files=[str(path)], builtin=False))
    assert rules.classify(failure("card b broke")).device == "b"
    assert rules.classify(failure("card b broke", "other")).rule == "default"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("rules: [{id: a}]", "f: rules[0].verdict: missing"),
        ("rules: [{verdict: permanent}]", "f: rules[0].id: expected lower-case words"),
        ("rules: [{id: A b, verdict: permanent}]", "f: rules[0].id: expected lower-case words"),
        ("rules: [{id: a, verdict: maybe}]", "f: rules[0].verdict: expected one of"),
        ("rules: [{id: a, verdict: permanent, txt: x}]", "f: rules[0].txt: unknown key; did you"),
        ("rules: [{id: a, verdict: permanent, text: 'x*'}]", "f: rules[0].text: an unbounded"),
        (
            "rules: [{id: a, verdict: permanent, code: [UNAVAILBLE]}]",
            "f: rules[0].code: unknown gRPC code `UNAVAILBLE`; did you mean `UNAVAILABLE`?",
        ),
        (
            "rules: [{id: a, verdict: permanent, transport: [gone], text: x}]",
            "f: rules[0].transport: a call without",
        ),
        (
            "rules: [{id: a, verdict: permanent}, {id: a, verdict: transient}]",
            "f: rules[1].id: `a`",
        ),
        ("packs: [{name: p, rules: []}]", "f: packs[0].drivers: name the drivers"),
        ("packs: [{name: p, drivers: ['*'], rules: []}]", "f: packs[0].drivers: name the drivers"),
        (
            "rules: [{id: a, verdict: permanent, also: x}]",
            "f: rules[0].also: needs a `text` beside it",
        ),
        (
            "rules: [{id: a, verdict: permanent, text: x, unless: '(?P<device>y)'}]",
            "f: rules[0].unless: unknown group name device",
        ),
        (
            "rules: [{id: a, verdict: permanent, text: x, singleAttempt: true, repeat: once}]",
            "f: rules[0].repeat: says something else",
        ),
        (
            "packs: [{name: p, drivers: [d], repeat: {withinCall: once}}]",
            "f: packs[0].repeat.reason: missing",
        ),
        (
            "rules: [{id: driver-marker, verdict: permanent}]",
            "f: rules[0].id: `driver-marker` is reserved",
        ),
        ("rules: {}", "f: rules: expected a list, got a mapping"),
        ("rules: [{id: default, verdict: permanent}]", "f: rules[0].id: `default` is reserved"),
    ],
)
def test_problems_have_their_path(body: str, said: str) -> None:
    found = problems(HEAD + body)
    assert len(found) == 1, found
    assert found[0].startswith(said)


def test_what_is_not_a_rule_file() -> None:
    assert problems("- a") == ["f: expected a mapping that begins with `apiVersion`"]
    assert problems("rules: []") == [
        "f: apiVersion: missing",
        "f: kind: missing",
        "f: version: missing",
    ]
    assert problems(HEAD.replace("FailureRules", "AgentConfig")) == [
        'f: kind: expected `FailureRules`, got "AgentConfig"'
    ]


def test_problems_of_all_files_come_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(HEAD + "rules: [{id: a}]")
    with pytest.raises(UserError) as caught:
        load_rules(Rules(files=[str(tmp_path / "a"), str(tmp_path / "none")]))
    assert [line.rpartition(": ")[2] for line in caught.value.problems] == [
        "missing",
        "no such file",
    ]


def test_the_same_file_twice_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(HEAD + "rules: [{id: a, verdict: transient, text: x}]")
    with pytest.raises(UserError, match="`a` is also in an earlier file"):
        load_rules(Rules(files=[str(path), str(path)]))


def test_a_user_s_pack_says_what_a_repeat_may_do(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        HEAD + "packs:\n- name: p\n  version: 3\n  drivers: [dra.net]\n"
        "  repeat: {withinCall: freely, reason: no profiles here, source: us}\n"
    )
    rules = load_rules(Rules(files=[str(path)]))
    found = rules.explain(failure("who knows", "dra.net"))
    assert found.pack is not None
    assert (found.pack.version, found.verdict.max_attempts) == (3, None)
    assert load_rules(Rules()).classify(failure("who knows", "dra.net")).single_attempt


def test_a_user_s_pack_without_a_word_on_repeats_leaves_the_builtin_one(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + "packs: [{name: p, drivers: [dra.net], rules: []}]\n")
    rules = load_rules(Rules(files=[str(path)]))
    assert rules.classify(failure("who knows", "dra.net")).single_attempt


def test_problems_of_the_users_files_alone(tmp_path: Path) -> None:
    file = tmp_path / "r"
    file.write_text("x: [")
    found = problems_of(Rules(files=[" ", "/none", str(file)]))
    assert found[0] == "rules.files[1]: /none: no such file"
    assert found[1].startswith(f"{file}: not valid YAML")
    assert problems_of(Rules()) == []


DOUBTED = HEAD + (
    "doubts: [{text: right now, reason: it passes}]\n"
    "rules:\n"
    "- {id: value, text: bad value, verdict: permanent, culprit: parameters, hint: mend it}\n"
    "- {id: card, text: bad card, verdict: permanent, culprit: device, hint: mend it}\n"
    "- {id: sure, text: bad key, verdict: permanent, culprit: claim, certain: true}\n"
    "- {id: slow, text: slow bus, verdict: transient, culprit: node}\n"
)


def test_doubts_make_a_permanent_rule_for_all_drivers_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(DOUBTED)
    rules = load_rules(Rules(files=[str(path)], builtin=False))

    def said(text: str) -> tuple[str, Kind, Culprit]:
        verdict = rules.classify(failure(text))
        return verdict.rule, verdict.kind, verdict.culprit

    assert said("bad value") == ("value", Kind.PERMANENT, Culprit.PARAMETERS)
    assert said("bad value right now") == ("value", Kind.AMBIGUOUS, Culprit.UNKNOWN)
    assert said("bad card right now") == ("card", Kind.AMBIGUOUS, Culprit.DEVICE)
    assert said("bad card right now: bad value") == ("value", Kind.AMBIGUOUS, Culprit.UNKNOWN)
    assert said("bad key right now") == ("sure", Kind.PERMANENT, Culprit.CLAIM)
    assert said("bad value right now: slow bus") == ("slow", Kind.TRANSIENT, Culprit.NODE)
    assert said("bad value; slow bus right now") == ("value", Kind.PERMANENT, Culprit.PARAMETERS)
    assert "mend it" in rules.classify(failure("bad card right now")).hint
    assert "mend it" not in rules.classify(failure("bad value right now")).hint


def test_a_doubt_needs_a_reason_and_an_allowed_pattern() -> None:
    assert problems(HEAD + "doubts: [{text: now}]\n") == [
        "f: doubts[0]: needs a `text` and a `reason`"
    ]
    (found,) = problems(HEAD + "doubts: [{text: 'a*', reason: x}]\n")
    assert found.startswith("f: doubts[0].text: ")
