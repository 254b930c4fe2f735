from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.aio import Tasks
from agent.core.pods import Pod
from agent.kube import pods as module
from agent.kube.client import Kube
from agent.kube.pods import PodStore
from tests.support.kube_api import (
    NODE,
    Fault,
    KubeApi,
    eventually,
    make_pod,
    start_container,
)


class Bench:
    def __init__(self, api: KubeApi, kube: Kube) -> None:
        self.api, self.kube, self.tasks = api, kube, Tasks()
        self.store = PodStore(kube, NODE, rng=random.Random(1))
        self.told: list[str] = []
        for name in ("on_gone", "on_deleting", "on_started", "on_change"):
            getattr(self.store, name).append(self._note(name.removeprefix("on_")))

    def _note(self, what: str) -> Any:
        def note(pod: Pod) -> None:
            self.told.append(f"{what} {pod.name}")

        return note

    async def run(self) -> None:
        self.tasks.start("pods", self.store.run())
        await eventually(lambda: self.store.synced)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(module, "BACKOFF", (0.02, 0.1))
    api = KubeApi()
    await api.start()
    kube = await Kube.open(kubeconfig=api.kubeconfig(tmp_path))
    assert kube is not None
    made = Bench(api, kube)
    yield made
    await made.tasks.close()
    await kube.close()
    await api.stop()


async def test_first_list(bench: Bench) -> None:
    running = make_pod("old", "c1")
    start_container(running)
    ended = make_pod("ended", "c2", phase="Failed")
    for pod in (running, ended, make_pod("plain"), make_pod("p", "c3", "c4")):
        await bench.api.put_pod(pod)
    assert not bench.store.synced
    await bench.run()
    assert len(bench.store) == 2
    assert [p.name for p in bench.store.of_claim("ns", "c4")] == ["p"]
    assert bench.store.of_claim("ns", "c2") == ()
    # One that had started before we looked is no news.
    assert sorted(bench.told) == ["change old", "change p"]


async def test_all_pods(bench: Bench) -> None:
    await bench.api.put_pod(make_pod("a", "c"))
    await bench.api.put_pod(make_pod("b", "d"))
    await bench.run()
    await eventually(lambda: len(bench.store) == 2)
    assert {pod.name for pod in bench.store.all()} == {"a", "b"}


async def test_life_of_a_pod(bench: Bench) -> None:
    await bench.run()
    await bench.api.put_pod(make_pod("p", "c"))
    await eventually(lambda: bench.store.get("uid-p"))
    await bench.api.change_pod("p", start_container)
    await eventually(lambda: "started p" in bench.told)
    await bench.api.change_pod("p", lambda p: p["metadata"].update(deletionTimestamp="t"))
    await eventually(lambda: "deleting p" in bench.told)
    await bench.api.delete_pod("p")
    await eventually(lambda: "gone p" in bench.told)
    assert bench.told == [
        "change p", "change p", "started p", "change p", "deleting p", "gone p",
    ]  # fmt: skip
    assert bench.store.of_claim("ns", "c") == ()


async def test_an_ended_pod_is_gone(bench: Bench) -> None:
    await bench.run()
    await bench.api.put_pod(make_pod("p", "c"))
    await eventually(lambda: bench.store.get("uid-p"))
    await bench.api.change_pod("p", lambda p: p["status"].update(phase="Failed"))
    await eventually(lambda: "gone p" in bench.told)
    assert len(bench.store) == 0


async def test_too_old_a_version_lists_again(bench: Bench) -> None:
    await bench.api.put_pod(make_pod("a", "c"))
    await bench.run()
    await eventually(lambda: bench.api.watches == 1)
    await bench.api.stop()
    await bench.api.delete_pod("a")
    bench.api.forget_history()
    await bench.api.put_pod(make_pod("b", "c"))
    await bench.api.start()
    await eventually(lambda: bench.store.get("uid-b"))
    await eventually(lambda: bench.store.get("uid-a") is None)
    assert "gone a" in bench.told
    assert [p.name for p in bench.store.of_claim("ns", "c")] == ["b"]


async def test_410_in_the_watch_lists_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.api.forget_history()
    real = bench.kube.list_pods

    async def stale(node: str) -> tuple[list[dict[str, Any]], str]:
        monkeypatch.setattr(bench.kube, "list_pods", real)
        return (await real(node))[0], "1"

    monkeypatch.setattr(bench.kube, "list_pods", stale)
    await bench.run()
    await bench.api.put_pod(make_pod("p", "c"))
    await eventually(lambda: bench.store.get("uid-p"))
    assert len([s for s in bench.api.seen if "watch" not in s.query]) == 2
    assert bench.store.failing == ""


async def test_outage_at_start_and_refusals_are_survived(bench: Bench) -> None:
    bench.api.faults += [Fault("GET", "/api/v1/pods", code) for code in (500, 403, 422)]
    bench.tasks.start("pods", bench.store.run())
    await eventually(lambda: bench.store.failing)
    await bench.api.put_pod(make_pod("p", "c"))
    await eventually(lambda: bench.store.get("uid-p"))
    await eventually(lambda: not bench.store.failing)
    assert bench.store.synced


async def test_pod_that_started_in_an_outage_is_news(bench: Bench) -> None:
    await bench.api.put_pod(make_pod("p", "c"))
    await bench.run()
    await bench.api.stop()
    await bench.api.change_pod("p", start_container)
    await bench.api.start()
    await eventually(lambda: "started p" in bench.told)


async def test_a_callback_that_raises_stops_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.on_change.insert(0, lambda pod: 1 / 0)  # type: ignore[arg-type]
    await bench.api.put_pod(make_pod("p", "c"))
    await bench.run()
    assert bench.told == ["change p"]
    assert "callback failed" in caplog.text


async def test_a_server_that_ends_each_watch_is_not_flooded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (0.2, 0.2))
    count = 0

    async def ends(*_: object) -> AsyncIterator[dict[str, Any]]:
        nonlocal count
        count += 1
        none: tuple[dict[str, Any], ...] = ()
        for event in none:
            yield event

    monkeypatch.setattr(bench.kube, "watch_pods", ends)
    await bench.run()
    await eventually(lambda: count >= 2)
    begun, before = asyncio.get_running_loop().time(), count
    await eventually(lambda: count >= before + 4)
    assert asyncio.get_running_loop().time() - begun > 0.05


async def test_only_this_nodes_pods_are_asked_for(bench: Bench) -> None:
    await bench.run()
    await eventually(lambda: bench.api.watches == 1)
    assert all(s.query["fieldSelector"] == f"spec.nodeName={NODE}" for s in bench.api.seen)
    seconds = int(bench.api.seen[-1].query["timeoutSeconds"])
    assert 240 <= seconds <= 300
