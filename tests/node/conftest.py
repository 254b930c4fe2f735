"""Fixtures of the node tests: the cluster once per session, drivers and agents once per test."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import build, run
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.forward import Forwarder
from .harness.namespace import clean_namespace, make_namespace
from .harness.otlp import Collector
from .harness.process import Process

SAVED_LOGS = build.CACHE / "node-logs"
_node: pytest.StashKey[Node] = pytest.StashKey()
_started: pytest.StashKey[list[Process]] = pytest.StashKey()
_figures: pytest.StashKey[list[str]] = pytest.StashKey()


def obstacle() -> str:
    """Why these tests cannot run here, with what to do; empty when they can."""
    if os.environ.get(run.MARK) != "1":
        return "they run in namespaces of their own: start them with tests/node/run.py, as root"
    if todo := build.outdated():
        return f"not built or out of date: {', '.join(todo)}; run python3 tests/node/build.py"
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if item.path.is_relative_to(here)]
    reason = obstacle() if mine else ""
    if not reason:
        return
    if os.environ.get("DRA_NO_SKIP"):
        raise pytest.UsageError(f"node tests: {reason}")
    for item in mine:
        item.add_marker(pytest.mark.skip(reason=f"NODE TESTS NOT RUN: {reason}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the ends of the logs below a failure and keeps the whole logs."""
    report = yield
    node = item.config.stash.get(_node, None)
    if report.failed and node:
        target = SAVED_LOGS / re.sub(r"[^\w.-]+", "_", item.nodeid.rsplit("/", 1)[-1])
        node.save_logs(target)
        started = item.stash.get(_started, [])
        for process in (*started, node.kubelet):
            report.sections.append((f"log of {process.name}", process.tail(25)))
        report.sections.append(("whole logs", str(target)))
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    figures = config.stash.get(_figures, [])
    if figures:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line with something measured; all lines are printed at the end of the run."""
    return request.config.stash.setdefault(_figures, []).append


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """The cluster. Tests that stop parts of it start them again."""
    node = Node(run.WORK, build.kube(), build.ROOT)
    request.config.stash[_node] = node
    try:
        node.up()
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            laps = ", ".join(f"{what} after {at} s" for what, at in node.timings.items())
            print(f"\nnode tests: {laps}")
        yield node
    except BaseException:
        node.save_logs(SAVED_LOGS / "bring-up")
        raise
    finally:
        node.down()


@pytest.fixture
def started(request: pytest.FixtureRequest) -> list[Process]:
    """The processes of this test, whose logs are shown when it fails."""
    item: pytest.Item = request.node
    return item.stash.setdefault(_started, [])


@pytest.fixture
def driver(node: Node, started: list[Process]) -> Iterator[Callable[..., Driver]]:
    """Makes and starts drivers: driver("gpu.example.com", devices=4, instance="", start=True)."""
    made: list[Driver] = []

    def make(name: str = "gpu.example.com", *, start: bool = True, **options: Any) -> Driver:
        new = Driver(node, build.BIN / "driver", name, **options)
        made.append(new)
        started.append(new.process)
        if start:
            new.start()
        return new

    yield make
    for old in made:
        old.remove()


@pytest.fixture
def agent(node: Node, started: list[Process]) -> Iterator[Callable[..., Agent]]:
    """Makes and starts agents: agent(mode="enforce", start=True, server="", …config keys)."""
    made: list[Agent] = []

    def make(*, start: bool = True, server: str = "", **config: Any) -> Agent:
        new = Agent(node, f"agent-{len(made)}", server=server, config=config)
        made.append(new)
        started.append(new.process)
        if start:
            new.start()
        return new

    yield make
    for old in made:
        old.remove()


@pytest.fixture
def forwarder(node: Node) -> Iterator[Forwarder]:
    """A way to the API server that tests can cut."""
    with Forwarder(node.server) as forwarder:
        yield forwarder


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A tracing backend."""
    with Collector() as collector:
        yield collector


@pytest.fixture
def namespace(
    node: Node, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> Iterator[str]:
    """A fresh namespace. It is emptied while drivers and agents still run: unprepare needs them."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    make_namespace(node, name)
    yield name
    node.heal()
    clean_namespace(node, name)
