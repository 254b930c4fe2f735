from agent.core.matcher import Matcher
from agent.core.model import Culprit, Failure, Kind, Surface, Transport
from agent.core.rules import Pack, Repeat, Rule, strictest

FAILURE = Failure("a.example", "prepare", Surface.CLAIM_ERROR, "text")


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


def test_all_three_patterns_must_agree() -> None:
    rule = Rule(
        "x",
        Kind.TRANSIENT,
        Culprit.DRIVER,
        text=Matcher("busy"),
        also=Matcher("mount"),
        unless=Matcher("retry"),
    )

    def found(said: str) -> bool:
        return rule.search(said, said.lower()) is not None

    assert found("mount is BUSY")
    assert not found("device is busy")
    assert not found("mount is busy, retry")
    assert Rule("x", Kind.TRANSIENT, Culprit.DRIVER).search("busy", "busy") is None


def test_the_first_form_that_matches_counts() -> None:
    rule = Rule("a", Kind.TRANSIENT, Culprit.DEVICE, text=Matcher(r"\bbusy\b"))
    forms = [("LIB_BUSY", "lib_busy"), ("LIB BUSY", "lib busy")]
    match = rule.search_forms(forms)
    assert match is not None
    assert match.string == "LIB BUSY"
    assert rule.search_forms(forms[:1]) is None


def test_repeat_words() -> None:
    assert [word.max_attempts for word in Repeat] == [None, 2, 1]


def test_the_strictest_pack_of_the_first_file_counts() -> None:
    free = Pack("a", ("d",), repeat=Repeat.FREELY, layer=1)
    never = Pack("b", ("d",), repeat=Repeat.NEVER, layer=1)
    user = Pack("c", ("d",), repeat=Repeat.ONCE, layer=0)
    assert strictest([free, never]) is never
    assert strictest([never, user]) is user
    assert strictest([]) is None
