"""The wiring: start, stop, mistakes of the user."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent import app
from agent.app import App
from agent.errors import UserError
from agent.observe import metrics
from agent.observe.web import Web
from agent.settings.model import AgentConfig, Drivers, Duration, Http, NodeIdentity, Report
from tests.support.node_standins import Driver
from tests.support.waiting import until

QUIET = AgentConfig(http=Http(listen="127.0.0.1:0"), report=Report(enabled=False))


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dra") as folder:  # short: socket paths end at 107
        path = Path(folder)
        (path / "plugins_registry").mkdir()
        (path / "plugins").mkdir()
        yield path


def identity(root: Path) -> NodeIdentity:
    return NodeIdentity(node_name="node-a", kubelet_root=str(root))


async def test_it_watches_says_ready_and_ends_at_sigterm(root: Path) -> None:
    agent = App(QUIET, identity(root))
    task = asyncio.get_running_loop().create_task(agent.main())
    await until(lambda: agent.registry.watching)
    await until(lambda: agent.probes.reporting.startswith("off"))
    assert all(check.ok for check in agent.probes.ready())
    assert all(check.ok for check in await agent.probes.live())
    state = agent.probes.state()
    assert (state["node"], state["mode"]) == ("node-a", "observe")
    assert b"dra_agent_build_info" in agent.probes.metrics()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "a second one ends it at once"


async def test_a_drivers_series_come_and_go_with_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "KEPT_GONE", 0)
    agent = App(
        msgspec.structs.replace(QUIET, drivers=Drivers(driver_absence_hold=Duration(0.1))),
        identity(root),
    )
    task = asyncio.get_running_loop().create_task(agent.main())
    driver = Driver(str(root), "gpu.example.com")
    await driver.start()
    up = b'dra_agent_driver_up{driver_name="gpu.example.com"} 1.0'
    await until(lambda: up in agent.probes.metrics())
    await driver.stop()
    await until(lambda: b"gpu.example.com" not in agent.probes.metrics())
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0


async def test_a_crashed_task_makes_it_unready(root: Path) -> None:
    agent = App(QUIET, identity(root))
    agent._crashed("pod watch", ValueError("defect"))
    (check,) = [c for c in agent.probes.ready() if c.name == "task/pod watch"]
    assert not check.ok
    assert "defect" in check.text


def test_a_missing_directory_is_one_line_and_exit_code_2(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "plugins_registry").rmdir()
    assert app.run(QUIET, identity(root)) == 2
    lines = [r for r in capsys.readouterr().err.splitlines() if r.startswith("dra-agent: ")]
    assert len(lines) == 1
    assert str(root / "plugins_registry") in lines[0]


def test_an_unusable_kubeconfig_ends_it_with_exit_code_2(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = AgentConfig(
        http=Http(listen=""), report=Report(kubeconfig=str(root / "no-such-kubeconfig"))
    )
    assert app.run(config, identity(root)) == 2
    assert "no-such-kubeconfig" in capsys.readouterr().err


def test_an_address_in_use_ends_it_with_exit_code_2(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = AgentConfig(http=Http(listen="198.51.100.1:1"), report=Report(enabled=False))
    assert app.run(config, identity(root)) == 2
    assert "198.51.100.1:1" in capsys.readouterr().err


async def test_nothing_is_registered_before_http_is_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = App(QUIET, identity(root))
    running: list[str] = []

    async def refused(_: object) -> int:
        running.extend(agent._tasks.names)
        raise UserError("the port is in use")

    monkeypatch.setattr(Web, "start", refused)
    with pytest.raises(UserError, match="in use"):
        await agent.main()
    assert running == []
