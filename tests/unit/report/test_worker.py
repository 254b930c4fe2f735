from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.core.model import DeviceState
from agent.report import worker
from tests.support.kube_api import Fault, eventually
from tests.support.kube_bench import bench, config
from tests.support.kube_records import BUSY, outcome


async def test_news_during_the_last_word_starts_another_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that comes while the recovery is being written must not be lost."""
    async with bench(tmp_path, config("observe")) as made:
        await made.pod("p")
        real = made.kube.patch_pod_status

        async def slow(namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = await real(namespace, name, body)
            if body["status"]["conditions"][0]["status"] == "True":
                made.submit(outcome("p-0", verdict=BUSY, error="again"))
                await eventually(lambda: not made.reporter.queue_length)
                await asyncio.sleep(0)
            return answer

        monkeypatch.setattr(made.kube, "patch_pod_status", slow)
        made.submit(outcome("p-0", DeviceState.PREPARED, attempts=2))
        await eventually(lambda: made.prepared("p").get("status") == "False")
        assert "again" in made.prepared("p")["message"]


async def test_a_conflict_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF", (0.02, 0.08))
    async with bench(tmp_path, config("observe")) as made:
        made.api.faults.append(Fault("PATCH", "/pods/p/status", 409))
        await made.pod("p")
        made.submit(outcome("p-0"))
        await eventually(lambda: made.prepared("p").get("status") == "False")


async def test_back_off_grows_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF", (0.02, 0.08))
    async with bench(tmp_path, config("observe")) as made:
        await made.pod("p")
        made.api.faults.append(Fault("PATCH", "/pods/p/", 503, times=5))
        made.submit(outcome("p-0", verdict=BUSY))
        await eventually(lambda: made.prepared("p"))
        assert len(made.api.patches()) == 6
        at = [s.at for s in made.api.patches()]
        assert at[-1] - at[0] >= 0.01 + 0.02 + 3 * 0.04


async def test_one_slow_pod_does_not_hold_up_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, config("observe")) as made:
        await made.pod("p")
        await made.pod("q")
        made.api.faults.append(Fault("PATCH", "/pods/p/", 0))
        made.submit(outcome("p-0", verdict=BUSY))
        made.submit(outcome("q-0", verdict=BUSY))
        await eventually(lambda: made.prepared("q"))
        assert made.prepared("p") == {}


async def test_pod_that_vanished_ends_its_task(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        await made.pod("p")
        made.api.faults.append(Fault("PATCH", "/pods/p/", 404))
        made.submit(outcome("p-0", verdict=BUSY))
        await eventually(lambda: len(made.api.patches()) == 1)
        await eventually(lambda: not made.reporter.pending)
