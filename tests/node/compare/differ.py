"""Two sides' facts side by side; what may differ is in allowed.yaml, with a reason each."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from .facts import OWN, Facts

ALLOWED = Path(__file__).with_name("allowed.yaml")
# What the agent writes before a driver's text, and for which a kubelet's own word stands directly.
PREFIX = re.compile(r"dra-agent: [^:]+: (?:(?:transient|permanent|ambiguous) \([^)]*\): )?")
CODE = re.compile(r"code = (\w+)")
SAID = 2  # different texts that a pod's failures may have


@dataclass(frozen=True)
class Allowed:
    """One entry of allowed.yaml; `path` and `scenarios` are patterns."""

    path: str
    when: str
    reason: str
    scenarios: tuple[str, ...] = ("*",)
    runs: tuple[str, ...] = ("*",)

    def applies(self, run: str, scenario: str) -> bool:
        return any(fnmatch.fnmatchcase(scenario, each) for each in self.scenarios) and any(
            fnmatch.fnmatchcase(run, each) for each in self.runs
        )

    def covers(self, difference: Difference) -> bool:
        return fnmatch.fnmatchcase(difference.path, self.path) and check(self.when, difference)


@dataclass(frozen=True)
class Difference:
    """None stands for a fact that one side does not have."""

    path: str
    direct: Any
    through: Any
    allowed: Allowed | None = None
    scenario: str = ""

    @property
    def reason(self) -> str:
        return self.allowed.reason if self.allowed else ""

    def __str__(self) -> str:
        return f"{self.path}: directly {self.direct!r}, through the agent {self.through!r}"


@functools.cache
def allowed() -> tuple[Allowed, ...]:
    return tuple(_entry(entry) for entry in yaml.safe_load(ALLOWED.read_text()))


def _entry(entry: dict[str, Any]) -> Allowed:
    for key in {"scenarios", "runs"} & entry.keys():
        entry[key] = tuple(entry[key])
    return Allowed(**entry)


def differences(
    direct: Facts, through: Facts, *, run: str, scenario: str
) -> tuple[list[Difference], list[Difference]]:
    """(red ones, allowed ones with their reasons)."""
    red, fine = [], []
    entries = [entry for entry in allowed() if entry.applies(run, scenario)]
    for path in sorted({*direct, *through}):
        difference = Difference(path, direct.get(path), through.get(path))
        if difference.direct == difference.through:
            continue
        entry = next((each for each in entries if each.covers(difference)), None)
        if entry is None:
            red.append(difference)
        else:
            fine.append(replace(difference, allowed=entry, scenario=scenario))
    return red, fine


def unused(cases: Iterable[tuple[str, str]], fine: Iterable[Difference]) -> list[Allowed]:
    """Entries for some of these (run, scenario) that stand behind none of their differences."""
    met = {difference.allowed for difference in fine}
    there = list(cases)
    return [
        entry
        for entry in allowed()
        if entry not in met and any(entry.applies(*case) for case in there)
    ]


def too_wide(cases: Iterable[tuple[str, str]], fine: Iterable[Difference]) -> list[str]:
    """Patterns of scenarios that nothing needed, of entries that something did."""
    needed: dict[Allowed, set[str]] = {}
    for difference in fine:
        if difference.allowed:
            needed.setdefault(difference.allowed, set()).add(difference.scenario)
    there = list(cases)
    return [
        f"{entry.path}, {entry.when}: {pattern}"
        for entry, names in needed.items()
        for pattern in entry.scenarios
        if not fnmatch.filter(names, pattern)
        and any(entry.applies(*case) and fnmatch.fnmatchcase(case[1], pattern) for case in there)
    ]


def check(when: str, difference: Difference) -> bool:
    """The words that allowed.yaml may use; with an argument after a space."""
    word, _, argument = when.partition(" ")
    return _WORDS[word](difference.direct, difference.through, argument)


def _number(value: Any) -> float:
    return len(value) if isinstance(value, list) else float(value or 0)


def _prefix(direct: Any, through: Any, _: str) -> bool:
    """The same texts once the agent's prefix is taken away."""
    if not isinstance(direct, list) or not isinstance(through, list):
        return False
    return {PREFIX.sub("", text) for text in through} == set(direct)


def _but(direct: Any, through: Any, left_out: str) -> bool:
    """The same texts without the agent's prefix and without those that hold some words."""
    kept = [{text for text in _texts(side) if left_out not in text} for side in (direct, through)]
    return kept[0] == kept[1]


def _fewer(direct: Any, through: Any, least: str) -> bool:
    """A part of what is there directly, or a smaller number that is at least so much."""
    if isinstance(direct, list):
        left = iter(direct)
        return all(any(one == other for other in left) for one in _texts(through))
    return float(least or 0) <= _number(through) < _number(direct)


def _texts(values: Any) -> list[Any]:
    return [PREFIX.sub("", each) if isinstance(each, str) else each for each in values or []]


def _more(direct: Any, through: Any, limit: str) -> bool:
    return 0 < _number(through) - _number(direct) <= float(limit)


def _some(direct: Any, through: Any, limit: str) -> bool:
    """Both are more than none, and not too far from each other."""
    sides = _number(direct), _number(through)
    return min(sides) > 0 and max(sides) - min(sides) <= float(limit)


def _near(direct: Any, through: Any, limit: str) -> bool:
    return abs(_number(through) - _number(direct)) <= float(limit)


def _later(direct: Any, through: Any, limits: str) -> bool:
    """Seconds: later by so many to so many."""
    if direct is None or through is None:
        return False
    least, most = map(float, limits.split())
    return bool(least <= through - direct <= most)


def _saying(direct: Any, through: Any, words: str) -> bool:
    """At most two texts, each of which is there directly or holds some words."""
    known = words.split("|")
    fine = [
        text
        for text in through or []
        if text in (direct or []) or any(each in text for each in known)
    ]
    return len(through or []) <= SAID and fine == (through or [])


def _known(direct: Any, through: Any, _: str) -> bool:
    """The same health once what is not known is left out."""
    sides = [
        [state for state in side or [] if any(word != "Unknown" for word, _ in state)]
        for side in (direct, through)
    ]
    runs = [[state for state, _ in itertools.groupby(side)] for side in sides]
    return runs[0] == runs[1]


def _kept(_: Any, through: Any, __: str) -> bool:
    return through is True


def _own(direct: Any, through: Any, _: str) -> bool:
    """Only names of the agent's own are more."""
    more = [each for each in through or [] if each not in (direct or [])]
    less = [each for each in direct or [] if each not in (through or [])]
    return not less and all(str(each).startswith(OWN) for each in more)


def _at_most(_: Any, through: Any, limit: str) -> bool:
    return _number(through) <= float(limit)


def _partly(direct: Any, through: Any, _: str) -> bool:
    """The same claims of a checkpoint; the devices are the same where both sides have any."""
    if [_asked(claim) for claim in direct or []] != [_asked(claim) for claim in through or []]:
        return False
    pairs = [
        (devices, other["devices"][driver])
        for claim, other in zip(direct, through, strict=True)
        for driver, devices in claim["devices"].items()
    ]
    return all(one == other or not one or not other for one, other in pairs)


def _doubled(direct: Any, through: Any, _: str) -> bool:
    """The same checkpoint when a device that is listed twice counts once."""
    sides = [
        [
            (_asked(claim), [_once(devices) for _, devices in sorted(claim["devices"].items())])
            for claim in claims or []
        ]
        for claims in (direct, through)
    ]
    return sides[0] == sides[1]


def _once(devices: list[Any]) -> list[Any]:
    return [device for i, device in enumerate(devices) if device not in devices[:i]]


def _asked(claim: dict[str, Any]) -> tuple[Any, ...]:
    return claim["claim"], claim["pods"], sorted(claim["devices"])


def _worded(direct: Any, through: Any, _: str) -> bool:
    """Other words for the same gRPC code, said by the agent."""
    codes = [
        {m[1] for text in texts or [] if (m := CODE.search(text))} for texts in (direct, through)
    ]
    return codes[0] == codes[1] and all(PREFIX.search(text) for text in through or [])


_WORDS: dict[str, Callable[[Any, Any, str], bool]] = {
    "prefix": _prefix,
    "but": _but,
    "fewer": _fewer,
    "more": _more,
    "some": _some,
    "near": _near,
    "later": _later,
    "own": _own,
    "atmost": _at_most,
    "worded": _worded,
    "saying": _saying,
    "known": _known,
    "kept": _kept,
    "partly": _partly,
    "doubled": _doubled,
}
