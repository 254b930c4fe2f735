"""Builds the peers before the first wire test, outside every test's time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.wire import build, harness

DRIVERS = ("go", "ccore", "tonic")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Only where wire tests were chosen."""
    here = str(build.HERE)
    if not session.config.option.collectonly and any(
        str(item.path).startswith(here) for item in session.items
    ):
        try:
            build.make()
        except subprocess.CalledProcessError as failed:
            _failed.append(" ".join(failed.cmd))


_failed: list[str] = []


def need(*peers: str) -> None:
    """Skip a test whose peer cannot be made here; grpc-go is kubelet in all of them."""
    assert not _failed, f"a peer could not be built: {_failed[0]}"
    lacking = build.missing()
    for peer in ("go", *peers):
        if peer in lacking:
            pytest.skip(f"wire tests: {peer}: {lacking[peer]}")


@pytest.fixture(autouse=True, scope="module")
def _peers() -> None:
    need()


@pytest.fixture(scope="module", params=DRIVERS)
def through(request: pytest.FixtureRequest) -> Iterator[harness.Node]:
    """kubelet, agent in overlay mode, and a driver of each make, for all tests of a module."""
    need(request.param)
    with harness.node() as node:
        node.start_driver(request.param)
        node.start_agent()
        node.connect()
        yield node


@pytest.fixture(scope="module", params=[(p, h) for p in DRIVERS for h in ("health", "no-health")])
def strict(request: pytest.FixtureRequest) -> Iterator[tuple[harness.Node, bool]]:
    """The same in intake mode, in which health streams pass; with and without that service."""
    peer, health = request.param
    need(peer)
    with harness.node(registration="intake") as node:
        node.start_driver(peer, health=health == "health")
        node.start_agent()
        node.connect()
        yield node, health == "health"
