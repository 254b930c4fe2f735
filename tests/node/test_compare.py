"""Same as without: scenarios on the kubelet directly and through the agent, compared."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import build
from .compare import differ, rounds, table
from .compare.everything import ALL
from .compare.facts import facts
from .compare.faulty import FAULTS, ThroughFaulty
from .compare.middle import ThroughAgent
from .compare.rounds import Pair, Round
from .compare.scenarios import Scenario
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.namespace import clean_namespace, make_namespace

CI = "overlay-ci"
AT_ONCE = 20  # scenarios; each takes two drivers and some pods
# Where a planted fault must be seen: the scenario that is run through it, and the fact. Where there
# is no fault, nothing.
PLANTED = {
    "none": ("none", "healthy", ""),
    "none-health": ("none", "health-both", ""),
    "none-failing": ("none", "call-unavailable", ""),
    "versions": ("versions", "healthy", "driver.main.services"),
    "unimplemented": (
        "unimplemented",
        "call-unavailable",
        "calls.main.NodePrepareResources.Unimplemented",
    ),
    "late-prepare": ("late-prepare", "healthy", "driver.main.calls.*"),
    "made-up": ("made-up", "deleted-while-failing", "events.a.FailedPrepareDynamicResources"),
    "dropped": ("dropped", "healthy", "events.a.FailedPrepareDynamicResources"),
    "heartbeat": ("heartbeat", "health-both", "pods.a.health"),
    "bypass": ("bypass", "healthy", "bypassed.main"),
}
Results = dict[str, dict[str, Pair]]


def cases() -> list[object]:
    found: list[object] = []
    kube = build.kube()
    long = [table.run_name(mode, kube) for mode in table.MODES]
    for run in ([CI] if kube is build.NEWEST else []) + long:
        marks = [] if run == CI else [pytest.mark.slow]
        names = [name for name, each in ALL.items() if each.ci or run != CI]
        found += [pytest.param(run, name, marks=marks, id=f"{run}-{name}") for name in names]
    return found


@pytest.fixture(scope="module")
def results() -> Results:
    return {}


@contextlib.contextmanager
def a_namespace(node: Node) -> Iterator[str]:
    space = f"t-{uuid.uuid4().hex[:8]}"
    make_namespace(node, space)
    try:
        yield space
    finally:
        node.heal()
        clean_namespace(node, space)


def execute(node: Node, run: str, names: list[str]) -> dict[str, Pair]:
    """All scenarios of a run, in rounds by what restarts in them."""
    mode = run.partition("-")[0]
    agent = Agent(node, "agent-compared", config=settings(mode))
    found: dict[str, Pair] = {}
    try:
        with a_namespace(node) as space:
            agent.start()
            middle = ThroughAgent(node, agent, mode == "intake")
            for now in in_rounds(names, node.kube.gates):
                gates = {gate: True for gate in node.kube.gates if now[0].health}
                if gates:
                    node.restart_kubelet(featureGates=gates)
                cases = [(each, middle) for each in now]
                with set_up(agent, mode, now[0].retire_after):
                    for pair in Round(node, space, agent).run(cases, now[0].restarts):
                        rounds.keep(pair, run)
                        found[pair.scenario.name] = pair
                node.heal()
    finally:
        if agent.process.log.exists():
            (rounds.OBSERVED / run).mkdir(parents=True, exist_ok=True)
            shutil.copy(agent.process.log, rounds.OBSERVED / run / "agent.log")
        agent.remove()
    return found


def settings(mode: str, retire_after: str = "") -> dict[str, Any]:
    periods = {"retireAfter": retire_after} if retire_after else {}
    return {
        "registration": {"kind": mode, "overlay": periods},
        "drivers": {"deny": ["*-direct*"]},
    }


@contextlib.contextmanager
def set_up(agent: Agent, mode: str, retire_after: str) -> Iterator[None]:
    """Another configuration for a round."""
    if not retire_after:
        yield
        return
    _restart(agent, settings(mode, retire_after))
    yield
    _restart(agent, settings(mode))


def _restart(agent: Agent, config: dict[str, Any]) -> None:
    agent.stop(30)
    agent.configure(**config)
    agent.start()


def in_rounds(names: list[str], gates: tuple[str, ...]) -> Iterator[list[Scenario]]:
    """At most AT_ONCE together; those about health apart where the kubelet needs gates for them."""
    kinds: dict[tuple[str, bool, str], list[Scenario]] = {}
    for each in (ALL[name] for name in names):
        gated = bool(gates) and each.health
        kinds.setdefault((each.restarts, gated, each.retire_after), []).append(each)
    for scenarios in kinds.values():
        for begin in range(0, len(scenarios), AT_ONCE):
            yield scenarios[begin : begin + AT_ONCE]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("run", "name"), cases())
def test_same_as_without(
    node: Node,
    results: Results,
    request: pytest.FixtureRequest,
    figures: Callable[[str], None],
    run: str,
    name: str,
) -> None:
    if run not in results:
        parameters = [
            item.callspec.params
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.originalname == "test_same_as_without"
        ]
        wanted = [str(each["name"]) for each in parameters if each["run"] == run]
        results[run] = {}
        results[run] = execute(node, run, wanted)
        for entry in never_needed(results):
            figures(f"up to {run}: allowed, but not seen: {entry}")
    pair = results[run][name]
    direct, through = facts(pair.direct), facts(pair.through)
    red, _ = differ.differences(direct, through, run=run, scenario=name)
    assert wrong(pair) + [str(each) for each in red] == []
    if "seconds.delete" in direct:
        asked, gone = (
            through[f"seconds.{what}"] - direct[f"seconds.{what}"]
            for what in ("unprepare", "delete")
        )
        title = ALL[name].title
        figures(f"{run}: {title}: unprepare {asked:+.1f} s, gone {gone:+.1f} s (aim 1 s)")


def wrong(pair: Pair) -> list[str]:
    """What kept the sides from being looked at."""
    raws = (pair.direct, pair.through)
    failures = [raw["failure"] for raw in raws if raw["failure"]]
    broken = [problem for raw in raws for problem in raw["broken"]]
    return failures + broken + (pair.direct["problems"] if failures else [])


def never_needed(found: Results) -> list[str]:
    """What is allowed and no run saw, of those that were done with all their scenarios."""
    whole = {
        run: pairs
        for run, pairs in found.items()
        if pairs.keys() == {name for name, each in ALL.items() if each.ci or run != CI}
    }
    fine = [
        difference
        for run, pairs in whole.items()
        for name, pair in pairs.items()
        for difference in differ.differences(
            facts(pair.direct), facts(pair.through), run=run, scenario=name
        )[1]
    ]
    done = [(run, name) for run, pairs in whole.items() for name in pairs]
    entries = [f"{entry.path}, {entry.when}" for entry in differ.unused(done, fine)]
    return entries + differ.too_wide(done, fine)


@pytest.fixture(scope="module")
def planted(node: Node) -> dict[str, Pair]:
    """Scenarios through proxies that do one thing wrong each, all at the same time."""
    proxies = {case: ThroughFaulty(node, case, fault) for case, (fault, *_) in PLANTED.items()}
    try:
        with a_namespace(node) as space:
            chosen = [
                (dataclasses.replace(ALL[scenario], name=f"planted-{case}"), proxies[case])
                for case, (_, scenario, _) in PLANTED.items()
            ]
            pairs = Round(node, space).run(chosen)
    finally:
        for proxy in proxies.values():
            proxy.stop()
    for pair in pairs:
        rounds.keep(pair, "planted")
    return dict(zip(PLANTED, pairs, strict=True))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_seen(planted: dict[str, Pair], case: str) -> None:
    _, scenario, where = PLANTED[case]
    pair = planted[case]
    direct, through = facts(pair.direct), facts(pair.through)
    red, _ = differ.differences(direct, through, run="planted", scenario=scenario)
    assert pair.direct["failure"] == ""
    if not where:
        assert [str(each) for each in red] + [pair.through["failure"]] == [""]
        return
    seen = [each for each in red if fnmatch.fnmatchcase(each.path, where)]
    assert seen, f"not seen at {where}: {[str(each) for each in red]}"


def test_every_fault_is_planted() -> None:
    assert {*FAULTS, "none"} == {fault for fault, *_ in PLANTED.values()}


def test_a_page_must_show_every_scenario_of_every_run() -> None:
    titles = [scenario.title for scenario in ALL.values()]
    tables = {
        heading: [table.HEADER, table.RULE, *(f"| {title} | x | x | yes |" for title in titles)]
        for heading in table.RUNS.values()
    }

    def problems() -> list[str]:
        lines = [line for heading, rows in tables.items() for line in (f"## {heading}", *rows)]
        return table.problems("\n".join(lines))

    assert problems() == []
    oldest = tables[table.RUNS["intake-1.34"]]
    gone = oldest.pop()
    assert problems() == [f"Intake, kubelet 1.34.4: {titles[-1]}: 0 rows"]
    oldest.append(gone.replace("yes", "NO"))
    assert problems() == [f"Intake, kubelet 1.34.4: {titles[-1]}: NO"]
    oldest[-1] = gone
    oldest.append("| a scenario of old | x | x | yes |")
    assert problems() == ["Intake, kubelet 1.34.4: no such scenario: a scenario of old"]


def test_health_is_apart_where_the_kubelet_needs_a_gate_for_it() -> None:
    names = ["healthy", "health-both", "kubelet-restarts"]
    together = [[each.name for each in found] for found in in_rounds(names, ())]
    assert together == [["healthy", "health-both"], ["kubelet-restarts"]]
    apart = [[each.name for each in found] for found in in_rounds(names, ("Gate",))]
    assert apart == [["healthy"], ["health-both"], ["kubelet-restarts"]]


def test_scenarios_with_an_agent_of_their_own_are_apart() -> None:
    found = in_rounds(["health-both", "health-retired", "healthy"], ())
    assert [[each.name for each in now] for now in found] == [
        ["health-both", "healthy"],
        ["health-retired"],
    ]


def test_the_page_says_whether_the_aim_for_deletions_was_met() -> None:
    def pair(unprepare: float, gone: float) -> Pair:
        sides = ({"unprepare": 0.1, "delete": 2.0}, {"unprepare": unprepare, "delete": gone})
        raws = [{"seconds": seconds} for seconds in sides]
        return Pair(ALL["deleted-while-failing"], *raws)

    lines = table.deletions({"overlay": [pair(0.2, 2.5)], "intake": [pair(0.2, 5.0)]}).splitlines()
    assert "- Overlay, kubelet 1.37.2: unprepare +0.1 s, pod gone +0.5 s: met" in lines
    assert "- Intake, kubelet 1.37.2: unprepare +0.1 s, pod gone +3.0 s: missed" in lines


def test_the_page_has_the_shape_of_what_is_compared() -> None:
    if os.environ.get("DRA_WRITE_COMPARISON"):
        table.FILE.write_text(table.render(table.cached()))
    assert table.problems(table.FILE.read_text()) == []
