"""Same as without: scenarios on the kubelet directly and through the agent, compared."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest

from .compare import rounds
from .compare.rounds import Pair, Round
from .compare.scenarios import ALL
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.namespace import clean_namespace, make_namespace

CI, OVERLAY, INTAKE = "overlay-ci", "overlay", "intake"


def cases() -> list[object]:
    found: list[object] = []
    for run in (CI, OVERLAY, INTAKE):
        marks = [] if run == CI else [pytest.mark.slow]
        names = [name for name, each in ALL.items() if each.ci or run != CI]
        found += [pytest.param(run, name, marks=marks, id=f"{run}-{name}") for name in names]
    return found


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Pair]]:
    return {}


def execute(node: Node, run: str, names: list[str]) -> dict[str, Pair]:
    """All scenarios of a run, in rounds by what restarts in them."""
    space = f"t-{uuid.uuid4().hex[:8]}"
    make_namespace(node, space)
    intake = run == INTAKE
    agent = Agent(
        node,
        "agent-compared",
        config={
            "registration": "intake" if intake else "overlay",
            "drivers": {"deny": ["*-direct*"]},
        },
    )
    found: dict[str, Pair] = {}
    try:
        agent.start()
        for restarts in ("", "kubelet", "agent"):
            chosen = [ALL[name] for name in names if ALL[name].restarts == restarts]
            if chosen:
                pairs = Round(node, agent, space, intake).run(chosen, restarts)
                for pair in pairs:
                    rounds.keep(pair, rounds.OBSERVED / run)
                found |= {pair.scenario.name: pair for pair in pairs}
    finally:
        (rounds.OBSERVED / run).mkdir(parents=True, exist_ok=True)
        shutil.copy(agent.process.log, rounds.OBSERVED / run / "agent.log")
        node.heal()
        clean_namespace(node, space)
        agent.remove()
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("run", "name"), cases())
def test_same_as_without(
    node: Node,
    results: dict[str, dict[str, Pair]],
    request: pytest.FixtureRequest,
    run: str,
    name: str,
) -> None:
    if run not in results:
        wanted = [
            item.callspec.params["name"]
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.originalname == "test_same_as_without"
            and item.callspec.params["run"] == run
        ]
        results[run] = execute(node, run, wanted)
    pair = results[run][name]
    assert pair.direct["failure"] == ""
    assert pair.through["failure"] == ""
