"""What does not change a failure does not change its verdict."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.commands import corpus
from agent.core.model import Culprit, Kind, Surface, Verdict
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support import metamorphic
from tests.support.metamorphic import PREFIXES
from tests.unit.corpus.test_figures import everything

RULES = load_rules(Rules())
ENTRIES = [entry for entry in everything() if entry.failure.surface is not Surface.TRANSPORT]
SINGLE = [entry for entry in ENTRIES if "\n" not in entry.failure.text]

# Names as people give them, those that say something else included.
WORDS = ["busy", "timed-out", "invalid", "not-ready", "dead", "permission", "retry", "gpu", "lock"]
NAME = st.one_of(
    st.from_regex(r"[a-z][a-z0-9]{0,10}(-[a-z0-9]{1,8}){1,3}", fullmatch=True),
    st.builds(lambda one, two: f"{one}-{two}", st.sampled_from(WORDS), st.integers(0, 99)),
)
UID = st.uuids().map(str)
ENTRY = st.sampled_from(ENTRIES)


@cache
def original(text: str, driver: str, code: int | None, op: str) -> Verdict:
    found = next(
        entry.failure
        for entry in ENTRIES
        if (entry.failure.text, entry.failure.driver) == (text, driver)
    )
    return RULES.classify(found)


def plain(entry: corpus.Entry) -> Verdict:
    said = entry.failure
    return original(said.text, said.driver, said.code, said.operation)


def same(one: Verdict, other: Verdict) -> bool:
    return (one.kind, one.culprit, one.rule) == (other.kind, other.culprit, other.rule)


@settings(max_examples=300)
@given(ENTRY, NAME, NAME, NAME, UID)
def test_other_names(entry: corpus.Entry, claim: str, ns: str, node: str, uid: str) -> None:
    text = metamorphic.renamed(entry.failure.text, claim=claim, namespace=ns, node=node, uid=uid)
    assert same(RULES.classify(replace(entry.failure, text=text)), plain(entry)), text


@given(ENTRY, st.sampled_from(["/data/kubelet", "/k", "/mnt/ssd-1/var/lib/kubelet"]))
def test_other_paths(entry: corpus.Entry, root: str) -> None:
    text = metamorphic.moved(entry.failure.text, root)
    assert same(RULES.classify(replace(entry.failure, text=text)), plain(entry)), text


@settings(max_examples=300)
@given(st.sampled_from(SINGLE), st.sampled_from(PREFIXES), NAME, NAME, UID)
def test_other_wrapping(entry: corpus.Entry, prefix: str, claim: str, ns: str, uid: str) -> None:
    """A verdict stays; only what was known as a whole text alone may lose its rule."""
    text = metamorphic.wrapped(entry.failure.text, prefix, claim=claim, namespace=ns, uid=uid)
    before, after = plain(entry), RULES.classify(replace(entry.failure, text=text))
    assert (after.kind, after.culprit) == (before.kind, before.culprit) or _whole_text(before), text


def _whole_text(verdict: Verdict) -> bool:
    """Rules that ask for a whole text: `context canceled` alone says that the caller gave up."""
    rule = next((rule for rule in RULES.rules if rule.id == verdict.rule), None)
    return rule is not None and rule.text is not None and "^" in rule.text.pattern


@settings(deadline=None, max_examples=200)
@given(ENTRY, st.sampled_from(metamorphic.ROOTS))
def test_directories_that_sound_like_failures(entry: corpus.Entry, root: str) -> None:
    text = metamorphic.elsewhere(entry.failure.text, root)
    said = replace(entry.failure, driver="")
    assert RULES.classify(replace(said, text=text)).kind is RULES.classify(said).kind, text


NAMED = [entry for entry in ENTRIES if (entry.fields.get("device") or "\0") in entry.failure.text]


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(NAMED), st.sampled_from(metamorphic.DEVICES))
def test_devices_that_sound_like_failures(entry: corpus.Entry, device: str) -> None:
    """Packs know how their driver writes names; rules for all drivers must not."""
    text = entry.failure.text.replace(entry.fields["device"], device)
    said = replace(entry.failure, driver="")
    before, after = RULES.classify(said), RULES.classify(replace(said, text=text))
    assert after.kind is before.kind, text
    assert after.blamed in (None, device) or before.blamed not in (None, entry.fields["device"])


SPOKEN = [
    entry
    for entry in ENTRIES
    if entry.failure.driver and entry.failure.driver in entry.failure.text
]


@settings(deadline=None)
@given(st.sampled_from(SPOKEN), st.sampled_from(metamorphic.DRIVERS))
def test_drivers_that_sound_like_failures(entry: corpus.Entry, driver: str) -> None:
    said = entry.failure
    other = RULES.classify(
        replace(said, text=said.text.replace(said.driver, driver), driver=driver)
    )
    assert other.kind is RULES.classify(replace(said, driver="")).kind


@settings(deadline=None)
@given(ENTRY, st.from_regex(r"[a-z]{2,12}\.[a-z]{2,9}\.(com|io|example)", fullmatch=True))
def test_another_driver_name(entry: corpus.Entry, driver: str) -> None:
    """No driver's name decides anything outside its pack."""
    other = RULES.classify(replace(entry.failure, driver=driver))
    assert same(other, RULES.classify(replace(entry.failure, driver="")))


@settings(max_examples=200)
@given(st.sampled_from(SINGLE), st.sampled_from(SINGLE), st.sampled_from(["\n", "; ", "list"]))
def test_joined_lists(one: corpus.Entry, two: corpus.Entry, how: str) -> None:
    """A permanent failure is found in any company, and company never makes one."""
    driver = one.failure.driver
    texts = [one.failure.text, two.failure.text]
    if how == "list" and any(", " in text or "[" in text for text in texts):
        how = "\n"
    text = f"[{', '.join(texts)}]" if how == "list" else how.join(texts)
    said = replace(one.failure, text=text, code=None, surface=Surface.CLAIM_ERROR)
    alone = [RULES.classify(replace(said, text=single)) for single in texts]
    together = RULES.classify(said)
    assert together.permanent == any(verdict.permanent for verdict in alone), (driver, text)


@pytest.mark.parametrize("name", ["gpu-7", "npu_3", "nic-12", "eth0", "0000:af:00.1"])
def test_other_devices(name: str) -> None:
    text = "device {} is resetting, please wait"
    said = replace(ENTRIES[0].failure, driver="x.example", operation="prepare")
    verdict = RULES.classify(replace(said, text=text.format(name)))
    assert (verdict.kind, verdict.culprit) == (Kind.TRANSIENT, Culprit.DEVICE)
    assert verdict.blamed == name
