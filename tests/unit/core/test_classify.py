import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.classify import DEFAULT, PERMANENT_ERROR, RuleSet
from agent.core.model import Culprit, Failure, Kind, Surface, Transport
from agent.core.rules import CODES, Rule
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules

BUILTIN = load_rules(Rules())
CORPUS = Path(__file__).parents[2] / "corpus" / "failures.jsonl"

# What a transport's words are for us, who see the exception and not its text.
BROKEN = {
    "refused": Transport.REFUSED,
    "Connect call failed": Transport.REFUSED,
    "no such file": Transport.GONE,
    "No such file": Transport.GONE,
    "EOF": Transport.RESET,
    "reset by peer": Transport.RESET,
    "INTERNAL_ERROR": Transport.RESET,
    "Connection lost": Transport.RESET,
    "deadline exceeded": Transport.DEADLINE,
    "error_code: 8": Transport.CANCELLED,
}


def failure(text: str, driver: str = "other.example", **more: object) -> Failure:
    values: dict[str, object] = {"surface": Surface.CLAIM_ERROR, "operation": "prepare", **more}
    return Failure(driver=driver, text=text, **values)  # type: ignore[arg-type]


def rule(name: str, pattern: str, kind: Kind = Kind.TRANSIENT, **more: object) -> Rule:
    return Rule(name, kind, Culprit.DRIVER, text=re.compile(pattern), **more)  # type: ignore[arg-type]


def of_corpus(entry: dict[str, str]) -> Failure:
    surface, code = entry["surface"], (entry["grpc_code"] or "").replace("CANCELED", "CANCELLED")
    driver = entry["driver"] if " " not in entry["driver"] else "other.example"
    transport = None
    if surface == "transport":
        transport = next(kind for words, kind in BROKEN.items() if words in entry["text"])
    return Failure(
        driver=driver,
        operation=entry["op"],
        surface=Surface.CALL_ERROR if surface == "grpc_status" else Surface.CLAIM_ERROR,
        text=entry["text"],
        code=CODES[code] if surface == "grpc_status" else None,
        transport=transport,
    )


def test_the_corpus() -> None:
    """Floors, not today's figures: no harmless failure may be called permanent."""
    entries = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    wanted, found = Counter[str](), Counter[str]()
    wrong, culprits, devices = [], 0, 0
    for entry in entries:
        verdict = BUILTIN.classify(of_corpus(entry))
        wanted[entry["verdict"]] += 1
        found[entry["verdict"]] += verdict.kind == entry["verdict"]
        culprits += verdict.culprit == entry["culprit"]
        devices += verdict.device == entry["device"]
        if verdict.permanent and entry["verdict"] != "permanent":
            wrong.append(entry["id"])
    figures = {kind: f"{found[kind]}/{wanted[kind]}" for kind in wanted}
    print(f"{figures}, culprit {culprits}, device {devices} of {len(entries)}")
    assert len(entries) >= 120
    assert wrong == []
    assert found["permanent"] >= 0.95 * wanted["permanent"]
    assert found["transient"] >= 0.95 * wanted["transient"]
    assert culprits >= 0.95 * len(entries)
    assert devices >= 0.95 * len(entries)


def test_each_example_is_decided_by_its_own_rule() -> None:
    for item in BUILTIN.rules:
        driver = "other.example" if item.generic else item.drivers[0]
        assert item.examples or item.text is None, item.id
        for example in item.examples:
            assert BUILTIN.classify(failure(example, driver)).rule == item.id, example


def test_every_builtin_rule_helps_a_person_and_names_its_source() -> None:
    for item in BUILTIN.rules:
        assert item.hint.endswith((".", "?")), item.id
        assert len(item.hint) <= 160, item.id
        assert item.source, item.id


def test_generic_rules_name_no_driver_and_no_vendor() -> None:
    names = {glob for item in BUILTIN.rules if not item.generic for glob in item.drivers}
    words = names | {"nvidia", "hami", "dranet", "intel", "amd", "gaudi", "MIG", "ComputeDomain"}
    for item in BUILTIN.rules:
        if item.generic:
            said = f"{item.id} {item.text.pattern if item.text else ''} {item.hint}"
            assert not [word for word in words if re.search(rf"\b{re.escape(word)}\b", said)], said


@pytest.mark.parametrize(
    ("driver", "text", "transport"),
    [
        ("gpu.intel.com", "write preparedClaims.json: no space left on device", None),
        ("qat.intel.com", "something nobody knows", None),
        ("hami-core-gpu.project-hami.io", "", Transport.DEADLINE),
        ("hami-core-gpu.project-hami.io", "", Transport.RESET),
        ("dra.net", "something nobody knows", None),
        ("dra.net", "", Transport.DEADLINE),
        ("gpu.nvidia.com", "error creating GPU instance for 'gpu-2-mig-4g95gb-5-0': x", None),
    ],
)
def test_where_a_repeat_is_a_risk(driver: str, text: str, transport: Transport | None) -> None:
    verdict = BUILTIN.classify(failure(text, driver, transport=transport))
    assert verdict.single_attempt
    assert not verdict.permanent


def test_known_passing_failures_of_such_drivers_are_repeated() -> None:
    text = "failed to get netlink to interface eth1: Link not found"
    verdict = BUILTIN.classify(failure(text, "dra.net"))
    assert verdict.kind is Kind.TRANSIENT
    assert not verdict.single_attempt


def test_permanent_error_wins_over_everything() -> None:
    verdict = BUILTIN.classify(failure("x", permanent_error=True, transport=Transport.GONE))
    assert (verdict.kind, verdict.rule) == (Kind.PERMANENT, PERMANENT_ERROR)
    assert verdict.explicit
    assert verdict.culprit is Culprit.UNKNOWN


def test_permanent_error_takes_culprit_and_device_from_the_text() -> None:
    text = "requested device is not allocatable: gpu-9"
    verdict = BUILTIN.classify(failure(text, permanent_error=True))
    assert verdict.rule == PERMANENT_ERROR
    assert (verdict.culprit, verdict.device) == (Culprit.DEVICE, "gpu-9")


def test_transport_comes_before_text() -> None:
    verdict = BUILTIN.classify(failure("strict decoding error: x", transport=Transport.REFUSED))
    assert verdict.rule == "transport-refused"


def test_text_comes_before_code_and_code_before_default() -> None:
    call = Surface.CALL_ERROR
    assert BUILTIN.classify(failure("strict decoding error: x", surface=call, code=14)).permanent
    away = BUILTIN.classify(failure("whatever", surface=call, code=14))
    assert away.rule == "code-unavailable"
    unknown = BUILTIN.classify(failure("whatever", surface=Surface.CALL_ERROR, code=2))
    assert (unknown.kind, unknown.culprit, unknown.rule) == (
        Kind.AMBIGUOUS,
        Culprit.UNKNOWN,
        DEFAULT,
    )


def test_a_driver_s_own_rule_comes_before_a_generic_one_of_the_same_file() -> None:
    rules = RuleSet([rule("all", "x"), rule("own", "x", drivers=("a.example",))])
    assert rules.classify(failure("x", "a.example")).rule == "own"
    assert rules.classify(failure("x", "b.example")).rule == "all"


def test_an_earlier_file_wins_over_a_driver_s_own_rule_of_a_later_one() -> None:
    rules = RuleSet([rule("own", "x", drivers=("a.example",), layer=1), rule("user", "x")])
    assert rules.classify(failure("x", "a.example")).rule == "user"


def test_catch_all_of_a_driver_comes_after_generic_rules() -> None:
    catch = Rule("catch", Kind.AMBIGUOUS, Culprit.DRIVER, drivers=("a.example",))
    code = Rule("code", Kind.TRANSIENT, Culprit.DRIVER, codes=frozenset({14}))
    rules = RuleSet([catch, rule("all", "x"), code])
    assert rules.classify(failure("x", "a.example")).rule == "all"
    assert rules.classify(failure("y", "a.example", code=14)).rule == "code"
    assert rules.classify(failure("y", "a.example", code=2)).rule == "catch"
    assert rules.classify(failure("y", "a.example", transport=Transport.GONE)).rule == DEFAULT


@pytest.mark.parametrize("join", ["{0}\n{1}", "{1}\n{0}", "several: [{0}, {1}]", "[{1}, {0}]"])
def test_of_joined_errors_the_permanent_one_wins(join: str) -> None:
    passing = "failed to get netlink to interface eth1: Link not found"
    lasting = "feature tx-foo not supported by interface"
    verdict = BUILTIN.classify(failure(join.format(passing, lasting), "dra.net"))
    assert verdict.permanent
    generic = "strict decoding error: unknown field x"
    assert BUILTIN.classify(failure(join.format(passing, generic), "dra.net")).permanent


def test_an_inner_deadline_is_not_a_call_s_deadline() -> None:
    inner = BUILTIN.classify(failure("waiting for the thing: context deadline exceeded"))
    assert inner.rule == "inner-deadline"
    outer = BUILTIN.classify(failure("context deadline exceeded", transport=Transport.DEADLINE))
    assert outer.rule == "transport-deadline"


def test_a_claim_that_the_answer_lacks_is_passing() -> None:
    verdict = BUILTIN.classify(failure("the driver's answer has no entry for this claim"))
    assert (verdict.kind, verdict.culprit) == (Kind.TRANSIENT, Culprit.DRIVER)


def test_start_and_end_of_a_huge_text_are_seen() -> None:
    filler = "error preparing: " * 100_000
    start = time.perf_counter()
    assert BUILTIN.classify(failure(f"{filler}strict decoding error: x")).permanent
    assert BUILTIN.classify(failure(f"strict decoding error: x{filler}")).permanent
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("unit", ["", "\n", "x\n", "requested ", "claim ", '": ', "[, ", "config "])
def test_hostile_texts_are_judged_quickly(unit: str) -> None:
    start = time.perf_counter()
    BUILTIN.classify(failure(unit * (1 << 17), "gpu.nvidia.com"))
    assert time.perf_counter() - start < 5


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_any_text_gets_a_verdict(text: str, explicit: bool) -> None:
    found = BUILTIN.explain(failure(text, permanent_error=explicit))
    assert found.verdict.explicit is explicit
    found.matched.encode()


def test_colours_and_line_breaks_do_not_hide_the_words() -> None:
    assert BUILTIN.classify(failure("strict\x1b[31m decoding\n error: x")).rule == DEFAULT
    assert BUILTIN.classify(failure("\x1b[31mstrict decoding error: \x1b[0mx")).permanent


def test_many_driver_names_do_not_fill_memory() -> None:
    rules = RuleSet([rule("own", "x")])
    for number in range(1000):
        rules.classify(failure("x", f"d{number}"))
    assert len(rules._by_driver) <= 256
