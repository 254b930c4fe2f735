"""Same as without: scenarios on the kubelet directly and through the agent, compared."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest

from .compare import differ, rounds, table
from .compare.facts import facts
from .compare.faulty import FAULTS, ThroughFaulty
from .compare.middle import ThroughAgent
from .compare.rounds import Pair, Round
from .compare.scenarios import ALL
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.namespace import clean_namespace, make_namespace

CI, OVERLAY, INTAKE = "overlay-ci", "overlay", "intake"
AT_ONCE = 20  # scenarios; each takes two drivers and some pods
DELETION_LIMIT = 5.0  # seconds later than directly; the aim is 1
# Where a planted fault must be seen: the scenario that is run through it, and the fact.
PLANTED = {
    "none": ("healthy", ""),
    "versions": ("healthy", "driver.main.services"),
    "unimplemented": ("call-unavailable", "calls.main.NodePrepareResources.Unimplemented"),
    "late-prepare": ("healthy", "driver.main.calls.*"),
    "made-up": ("deleted-while-failing", "pods.a.phases"),
    "dropped": ("healthy", "events.a.FailedPrepareDynamicResources"),
    "heartbeat": ("health-both", "pods.a.health"),
    "bypass": ("healthy", "bypassed.main"),
}
Results = dict[str, dict[str, Pair]]


def cases() -> list[object]:
    found: list[object] = []
    for run in (CI, OVERLAY, INTAKE):
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
    intake = run == INTAKE
    registration = "intake" if intake else "overlay"
    config = {"registration": registration, "drivers": {"deny": ["*-direct*"]}}
    agent = Agent(node, "agent-compared", config=config)
    found: dict[str, Pair] = {}
    try:
        with a_namespace(node) as space:
            agent.start()
            middle = ThroughAgent(node, agent, intake)
            for restarts in ("", "kubelet", "agent"):
                chosen = [(ALL[name], middle) for name in names if ALL[name].restarts == restarts]
                while chosen:
                    now, chosen = chosen[:AT_ONCE], chosen[AT_ONCE:]
                    for pair in Round(node, space, agent).run(now, restarts):
                        rounds.keep(pair, run)
                        found[pair.scenario.name] = pair
    finally:
        if agent.process.log.exists():
            (rounds.OBSERVED / run).mkdir(parents=True, exist_ok=True)
            shutil.copy(agent.process.log, rounds.OBSERVED / run / "agent.log")
        agent.remove()
    return found


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
    pair = results[run][name]
    direct, through = facts(pair.direct), facts(pair.through)
    red, _ = differ.differences(direct, through, run=run, scenario=name)
    failures = [raw["failure"] for raw in (pair.direct, pair.through) if raw["failure"]]
    assert failures + [str(each) for each in red] == []
    if "seconds.delete" in direct:
        later = through["seconds.delete"] - direct["seconds.delete"]
        figures(f"{run}: {ALL[name].title}: gone {later:+.1f} s later than directly (aim 1 s)")
        assert later < DELETION_LIMIT


@pytest.fixture(scope="module")
def planted(node: Node) -> dict[str, Pair]:
    """Scenarios through proxies that do one thing wrong each, all at the same time."""
    proxies = {fault: ThroughFaulty(node, fault) for fault in PLANTED}
    try:
        with a_namespace(node) as space:
            chosen = [
                (dataclasses.replace(ALL[scenario], name=f"planted-{fault}"), proxies[fault])
                for fault, (scenario, _) in PLANTED.items()
            ]
            pairs = Round(node, space).run(chosen)
    finally:
        for proxy in proxies.values():
            proxy.stop()
    for pair in pairs:
        rounds.keep(pair, "planted")
    return dict(zip(PLANTED, pairs, strict=True))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_seen(planted: dict[str, Pair], fault: str) -> None:
    scenario, where = PLANTED[fault]
    pair = planted[fault]
    direct, through = facts(pair.direct), facts(pair.through)
    red, _ = differ.differences(direct, through, run="planted", scenario=scenario)
    assert pair.direct["failure"] == ""
    if not where:
        assert [str(each) for each in red] + [pair.through["failure"]] == [""]
        return
    seen = [each for each in red if fnmatch.fnmatchcase(each.path, where)]
    assert seen, f"not seen at {where}: {[str(each) for each in red]}"


def test_every_fault_is_planted() -> None:
    assert {*FAULTS, "none"} == set(PLANTED)


def test_partly_allows_chance_and_no_more() -> None:
    def checkpoint(good: list[str], bad: list[str], pods: int = 1) -> list[object]:
        return [{"claim": "t0", "pods": pods, "devices": {"main": good, "bad": bad}}]

    def fine(through: list[object]) -> bool:
        direct = checkpoint(["gpu-0"], [])
        return differ.check("partly", differ.Difference("checkpoint.failing", direct, through))

    assert fine(checkpoint([], []))
    assert not fine(checkpoint(["gpu-1"], []))
    assert not fine(checkpoint([], [], pods=2))
    assert not fine([])


def test_the_page_has_the_shape_of_what_is_compared() -> None:
    if os.environ.get("DRA_WRITE_COMPARISON"):
        table.FILE.write_text(table.render(table.cached()))
    assert table.problems(table.FILE.read_text()) == []
