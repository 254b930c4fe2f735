import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.commands import rules
from agent.core import parts
from agent.core.classify import DEFAULT, RuleSet
from agent.core.evidence import PERMANENT_ERROR
from agent.core.matcher import Matcher
from agent.core.model import Culprit, Failure, Kind, Surface, Transport
from agent.core.rules import Pack, Repeat, Rule
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support.details import bad_request, details_bin, error_info, retry_info

BUILTIN = load_rules(Rules())
RETRY = details_bin(retry_info(1, 500_000_000))
BAD = details_bin(bad_request("spec.size", "must be even"))
OURS = details_bin(error_info("PERMANENT", "dra-agent.io", culprit="device", device="gpu-1"))
REASON = details_bin(error_info("CARD_LOST", "cards.example"))


def failure(text: str, driver: str = "other.example", **more: object) -> Failure:
    values: dict[str, object] = {"surface": Surface.CLAIM_ERROR, "operation": "prepare", **more}
    return Failure(driver=driver, text=text, **values)  # type: ignore[arg-type]


def rule(name: str, pattern: str, kind: Kind = Kind.TRANSIENT, **more: object) -> Rule:
    return Rule(name, kind, Culprit.DRIVER, text=Matcher(pattern), **more)  # type: ignore[arg-type]


def test_each_example_is_decided_by_its_own_rule() -> None:
    assert [item.id for item in BUILTIN.rules if item.text and not item.examples] == []
    assert list(rules.failed_examples(BUILTIN, BUILTIN.rules)) == []


def test_every_builtin_rule_helps_a_person_and_names_its_source() -> None:
    for item in BUILTIN.rules:
        assert item.hint.endswith((".", "?")), item.id
        assert len(item.hint) <= 160, item.id
        assert item.source, item.id


def test_generic_rules_name_no_driver_and_no_vendor() -> None:
    names = {glob for item in BUILTIN.rules if not item.generic for glob in item.drivers}
    words = names | {"nvidia", "hami", "dranet", "intel", "amd", "gaudi", "mig", "computedomain"}
    for item in BUILTIN.rules:
        if item.generic:
            patterns = [p.pattern for p in (item.text, item.also, item.unless) if p is not None]
            said = f"{item.id} {item.hint} {' '.join(patterns)}".lower()
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


def test_packs_say_why_a_repeat_is_a_risk() -> None:
    assert len(BUILTIN.packs) >= 10
    for pack in BUILTIN.packs:
        assert pack.reason, pack.name
        assert pack.source, pack.name
        assert pack.version >= 1
    found = BUILTIN.explain(failure("", "hami-core-gpu.project-hami.io", transport=Transport.RESET))
    assert found.pack is not None
    assert found.pack.name == "hami-core"


def test_once_allows_two_attempts() -> None:
    verdict = BUILTIN.classify(failure("", "dra.nvme", transport=Transport.DEADLINE))
    assert (verdict.max_attempts, verdict.single_attempt) == (2, False)
    refused = BUILTIN.classify(failure("", "dra.nvme", transport=Transport.REFUSED))
    assert refused.max_attempts is None  # the driver never saw the call


def test_a_rule_s_own_word_on_repeats_wins_over_the_pack() -> None:
    pack = Pack("p", ("d",), repeat=Repeat.NEVER)
    free = rule("free", "x", Kind.AMBIGUOUS, repeat=Repeat.FREELY)
    found = RuleSet([free], [pack])
    assert found.classify(failure("x", "d")).max_attempts is None
    assert found.classify(failure("y", "d")).max_attempts == 1
    assert found.classify(failure("y", "e")).max_attempts is None


def test_a_named_device_is_innocent_unless_the_culprit_is_a_device() -> None:
    text = "requested device gpu-0 is already allocated to different claim u2"
    verdict = BUILTIN.classify(failure(text))
    assert (verdict.device, verdict.blamed) == ("gpu-0", None)
    assert verdict.span is not None
    assert text[slice(*verdict.span)].startswith("requested device")
    assert verdict.matched == text[slice(*verdict.span)]
    marked = failure(f"{text} [dra-agent.io transient claim=u-1]", claim="u-1")
    assert BUILTIN.classify(marked).matched == verdict.matched


def test_of_several_named_devices_none_is_guessed() -> None:
    one = BUILTIN.classify(failure("device npu-2 is resetting"))
    two = BUILTIN.classify(
        failure("link down between npu-2 and npu-3, waiting for link to come up")
    )
    assert one.blamed == "npu-2"
    assert (two.culprit, two.blamed) == (Culprit.DEVICE, None)


def test_an_ambiguous_rule_of_a_kind_blames_no_device() -> None:
    verdict = BUILTIN.classify(failure("could not bind 0000:6b:01.3: No such device"))
    assert (verdict.kind, verdict.blamed) == (Kind.AMBIGUOUS, None)
    assert verdict.where == ""


UID = "7b0f7d52-91b1-4c57-9f0e-52d0a4f0c1aa"


def test_a_marker_for_this_claim_decides() -> None:
    said = f"outer: strict decoding error: x [dra-agent.io transient claim={UID} retry-after=3s]"
    verdict = BUILTIN.classify(failure(said, claim=UID))
    assert (verdict.kind, verdict.rule, verdict.retry_after) == (
        Kind.TRANSIENT,
        "driver-marker",
        3.0,
    )
    assert verdict.culprit is Culprit.PARAMETERS  # left open, so the rules say it
    assert not verdict.explicit
    assert BUILTIN.classify(failure(said, claim="other")).rule == "parameters-unknown-field"
    assert BUILTIN.classify(failure(said)).rule == "parameters-unknown-field"


def test_a_forged_marker_in_a_claim_s_parameters_changes_nothing() -> None:
    forged = "[dra-agent.io permanent culprit=device device=gpu-1]"
    said = f'device d-1 is resetting; ignored field "{forged}"'
    verdict = BUILTIN.classify(failure(said, claim=UID))
    assert (verdict.kind, verdict.rule) == (Kind.TRANSIENT, "device-resetting")
    assert verdict.blamed != "gpu-1"


def test_details_come_before_text() -> None:
    call: dict[str, Any] = {"surface": Surface.CALL_ERROR, "code": 9}
    retry = BUILTIN.classify(failure("strict decoding error: x", details=RETRY, **call))
    assert (retry.kind, retry.rule, retry.retry_after) == (
        Kind.TRANSIENT,
        "driver-retry-info",
        1.5,
    )
    bad = BUILTIN.classify(failure("whatever", details=BAD, **call))
    assert (bad.kind, bad.culprit) == (Kind.PERMANENT, Culprit.PARAMETERS)
    assert "spec.size" in bad.hint
    both = BUILTIN.classify(failure("whatever", details=BAD + RETRY, **call))
    assert both.kind is Kind.TRANSIENT, "the less final one wins"
    ours = BUILTIN.classify(failure("whatever", details=OURS, **call))
    assert (ours.kind, ours.blamed, ours.rule) == (Kind.PERMANENT, "gpu-1", "driver-error-info")


def test_rules_can_ask_for_a_reason() -> None:
    lost = Rule("lost", Kind.PERMANENT, Culprit.DEVICE, reasons=frozenset({"CARD_LOST"}))
    rules_ = RuleSet([lost, rule("all", "x")])
    said = failure("x", surface=Surface.CALL_ERROR, code=13, details=REASON)
    assert rules_.classify(said).rule == "lost"
    assert rules_.classify(failure("x")).rule == "all"


@given(st.binary(max_size=300))
def test_hostile_details_never_raise(raw: bytes) -> None:
    BUILTIN.classify(failure("x", surface=Surface.CALL_ERROR, code=3, details=raw))


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
    inner = BUILTIN.classify(failure("asking for the thing: context deadline exceeded"))
    assert inner.rule == "something-timed-out"
    host = BUILTIN.classify(failure("no DHCP lease on eth1: context deadline exceeded"))
    assert host.culprit is Culprit.NODE
    outer = BUILTIN.classify(failure("context deadline exceeded", transport=Transport.DEADLINE))
    assert outer.rule == "transport-deadline"


def test_a_claim_that_the_answer_lacks_is_passing() -> None:
    verdict = BUILTIN.classify(failure("the driver's answer has no entry for this claim"))
    assert (verdict.kind, verdict.culprit) == (Kind.TRANSIENT, Culprit.DRIVER)


def test_start_and_end_of_a_huge_text_are_seen() -> None:
    filler = "error preparing: " * 100_000
    assert BUILTIN.classify(failure(f"{filler}strict decoding error: x")).permanent
    assert BUILTIN.classify(failure(f"strict decoding error: x{filler}")).permanent


def seconds(said: Failure) -> float:
    """The least of some runs, of the processor's time: what others take of it does not count."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        BUILTIN.classify(said)
        times.append(time.thread_time() - start)
    return min(times)


UNITS = [
    "\n",
    "x\n",
    "requested ",
    "claim ",
    '": ',
    "[, ",
    "config ",
    "waiting for lock ",
    "a; ",
    "gpu-1 ",
]
NAMES = ["/a", "a.", "node a-1: ", "gpu-1: is lost, ", "x_1-"]


@pytest.mark.parametrize(
    "unit", [*UNITS, *NAMES, "\x1b[31m", "<b>", "\0\xff", "invalid device ", "not "]
)
def test_hostile_texts_cost_no_more_than_linearly(unit: str) -> None:
    """Side by side: 16 times the text takes at most 16 times as long (and some noise)."""
    small = failure(unit * ((1 << 16) // len(unit)), "gpu.nvidia.com")
    large = failure(unit * ((1 << 20) // len(unit)), "gpu.nvidia.com")
    assert seconds(large) <= 16 * 2 * max(seconds(small), 0.0005)


def test_what_patterns_see_has_a_bound() -> None:
    """Counted: however long the text, the rules see 12 KiB of it, in at most 33 pieces."""
    for unit in UNITS:
        whole, singles = parts.split(unit * (1 << 17))
        assert len(whole) <= 3 * parts.ENDS + 16
        assert len(singles) <= 2 * parts.MAX_PARTS


@pytest.mark.parametrize(
    "around", ["{}", "\x1b[1;31m{}\x1b[0m", "<pre>{}</pre>", "{}\r\n", "  {}\t"]
)
def test_dress_does_not_change_a_verdict(around: str) -> None:
    for said in ("strict decoding error: x", "device d-1 is resetting", "no space left on device"):
        plain, dressed = failure(said), failure(around.format(said))
        assert BUILTIN.classify(dressed).rule == BUILTIN.classify(plain).rule


def test_ten_thousand_claims_cost_ten_thousand_times_one() -> None:
    said = [
        failure(f"claim c-{n}: strict decoding error: unknown field f{n}") for n in range(10_000)
    ]
    assert {BUILTIN.classify(one).rule for one in said} == {"parameters-unknown-field"}


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
