"""docs/comparison.md: what the last long run saw, scenario by scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import build
from . import differ, rounds
from .everything import ALL
from .facts import METHODS, Facts, facts
from .rounds import Pair

FILE = Path(__file__).resolve().parents[3] / "docs" / "comparison.md"
HEADER = "| Scenario | Directly | Through the agent | Same? |"
RULE = "| --- | --- | --- | --- |"
MODES = ("overlay", "intake")


def run_name(mode: str, kube: build.Kube) -> str:
    """As allowed.yaml and the cache call a run."""
    return mode if kube is build.NEWEST else f"{mode}-{kube.minor}"


RUNS = {
    run_name(mode, kube): f"{mode.capitalize()}, kubelet {kube.version.removeprefix('v')}"
    for kube in build.KUBES.values()
    for mode in MODES
}
_INTRO = """\
# Same as without

What a kubelet does and shows with the agent in the middle, beside the same without it. Written by
the tests (`tests/node/test_compare.py`) from what they saw: each scenario runs on a real kubelet
twice at the same time, once with a driver that the agent must not serve and once with one that it
serves. All of it is done on the newest and on the oldest Kubernetes that is supported. Compared are
the kubelet's registrations, events, `dra_*` metrics by code and checkpoint, the ResourceSlices over
time, the pods' status, and what reached the driver. A difference that is not listed with a reason
in `tests/node/compare/allowed.yaml` fails the tests. That they would see one is tested too, with a
proxy that does one thing wrong.

Feature gates are as they are by default, but for the health scenarios on 1.34: a kubelet of that
time asks for devices' health only with the gate ResourceHealthStatus, which is on for these alone.
It also leaves it at one NotifyRegistrationStatus, and uses a driver that fails it all the same.

The kubelet's own disconnect after half an hour of idleness is not among the scenarios: it runs with
grpc-go and the kubelet's dial options in `tests/wire/test_connections.py`, with 2 s
(`test_kubelets_idle_disconnect_is_nothing_special`) and in full
(`test_kubelets_real_idle_half_hour`).

`make long` runs all of it and keeps the raw observations in `.cache/compare`;
`DRA_WRITE_COMPARISON=1 make long` also writes this page. Numbers in it are of that one run.
"""


AIM = 1.0  # second
_DELETIONS = """\
## A pod that is deleted while its prepare fails

How much later than directly its unprepare came and it was gone. The aim is that it is gone within a
second more; red is an unprepare more than 5 s later. Only what is before the unprepare can be the
agent's: the rest is the kubelet's work on control groups, which takes up to 8 s on a slow machine,
with or without an agent.
"""


def render(pairs: Mapping[str, Sequence[Pair]]) -> str:
    """The whole page; `pairs` by run."""
    notes: list[str] = []
    parts = [_INTRO]
    for run, seen in pairs.items():
        parts.append(f"## {RUNS[run]}\n\n{HEADER}\n{RULE}")
        parts[-1] += "".join(f"\n{_row(run, pair, notes)}" for pair in seen) + "\n"
    parts += [deletions(pairs)] if deletions(pairs) else []
    parts.append("## Notes\n")
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return "\n".join(parts) + f"\n{listed}\n"


def deletions(pairs: Mapping[str, Sequence[Pair]]) -> str:
    """How much later than directly a pod goes that is deleted while its prepare fails."""
    lines = []
    for run, seen in pairs.items():
        for pair in seen:
            direct, through = pair.direct["seconds"], pair.through["seconds"]
            if "unprepare" in direct and "unprepare" in through:
                asked, gone = (through[what] - direct[what] for what in ("unprepare", "delete"))
                verdict = "met" if gone <= AIM else "missed"
                lines.append(
                    f"- {RUNS[run]}: unprepare {asked:+.1f} s, pod gone {gone:+.1f} s: {verdict}"
                )
    return "\n".join([_DELETIONS, *lines, ""]) if lines else ""


def _row(run: str, pair: Pair, notes: list[str]) -> str:
    direct, through = facts(pair.direct), facts(pair.through)
    red, fine = differ.differences(direct, through, run=run, scenario=pair.scenario.name)
    failed = pair.direct["failure"] or pair.through["failure"]
    numbers = []
    for reason in dict.fromkeys(difference.reason.strip() for difference in fine):
        if reason not in notes:
            notes.append(reason)
        numbers.append(notes.index(reason) + 1)
    same = "NO" if red or failed else "yes"
    if numbers and same == "yes":
        same += f", but for {', '.join(map(str, sorted(numbers)))}"
    return f"| {pair.scenario.title} | {summary(direct)} | {summary(through)} | {same} |"


def summary(seen: Facts) -> str:
    """The kubelet's calls by code, what came to the driver, and how devices fared."""
    parts = []
    for short, method in zip(("prepare", "unprepare"), METHODS, strict=True):
        codes: dict[str, int] = {}
        for path, number in seen.items():
            if path.startswith("calls.") and f".{method}." in path:
                code = path.rsplit(".", 1)[1]
                codes[code] = codes.get(code, 0) + number
        attempts = sum(n for p, n in seen.items() if p.endswith(f".attempts.{short}"))
        if codes or attempts:
            said = ", ".join(f"{number} {code}" for code, number in sorted(codes.items()))
            parts.append(f"{short}: {said or 'none counted'}; driver {attempts}")
    wipes = sum(number for path, number in seen.items() if path.endswith(".wipes"))
    parts += [f"devices wiped {wipes}×"] if wipes else []
    parts += [
        f"{path.removeprefix('seconds.')} {value:.1f} s"
        for path, value in seen.items()
        if path.startswith("seconds.")
    ]
    return "<br>".join(parts)


def cached() -> dict[str, list[Pair]]:
    """What the last sessions kept, all runs and scenarios that are there."""
    found = {run: [rounds.kept(run, each) for each in ALL.values()] for run in RUNS}
    return {run: [p for p in pairs if p] for run, pairs in found.items() if any(pairs)}


def problems(text: str) -> list[str]:
    """What is wrong with the shape of a page, whatever the numbers in it are."""
    titles = [scenario.title for scenario in ALL.values()]
    tables = _tables(text)
    wrong = [f"no heading for it: {run}" for run in tables.keys() - RUNS.values()]
    for run in RUNS.values():
        rows = tables.get(run, [])
        there = [row[0] for row in rows]
        wrong += [
            f"{run}: {title}: {there.count(title)} rows"
            for title in titles
            if there.count(title) != 1
        ]
        wrong += [f"{run}: no such scenario: {title}" for title in there if title not in titles]
        wrong += [f"{run}: {row[0]}: {row[-1]}" for row in rows if not row[-1].startswith("yes")]
    return wrong


def _tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each table by the heading above it."""
    tables: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| ") and line not in (HEADER, RULE):
            tables.setdefault(heading, []).append(line.strip("| ").split(" | "))
    return tables
