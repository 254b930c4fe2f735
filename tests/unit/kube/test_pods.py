from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.aio import Tasks
from agent.core.pods import Pod
from agent.kube import pods as module
from agent.kube.client import Kube
from agent.kube.errors import Expired, KubeError, Unavailable
from agent.kube.pods import PodStore
from tests.support.kube_api import (
    NODE,
    Fault,
    KubeApi,
    eventually,
    make_pod,
    start_container,
)

NONE: tuple[dict[str, Any], ...] = ()


class Highest(random.Random):
    def random(self) -> float:
        return 1.0

    def uniform(self, a: float, b: float) -> float:
        return b


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


async def test_410_in_the_watch_lists_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("how", [None, Expired("410: too old", 410), Unavailable("500: no", 500)])
async def test_a_server_that_lists_but_ends_each_watch_is_asked_ever_less(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: KubeError | None
) -> None:
    async def ends(*_: object) -> AsyncIterator[dict[str, Any]]:
        if how is not None:
            raise how
        for event in NONE:
            yield event

    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:
            raise asyncio.CancelledError

    monkeypatch.setattr(bench.kube, "watch_pods", ends)
    monkeypatch.setattr(module, "BACKOFF", (1.0, 30.0))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(bench.store, "_rng", Highest())
    with pytest.raises(asyncio.CancelledError):
        await bench.store.run()
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_watch_that_lasted_makes_the_waits_short_again() -> None:
    pace = module.Pace(Highest())
    assert [pace.after(1.0, failed=True) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [pace.after(s, failed=False) for s in (240.0, 0.0, 0.0)] == [0.5, 1, 2]


async def test_an_answer_of_another_shape_is_a_failure_like_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench.kube._request
    shapes: Iterator[dict[str, Any]] = iter([{"items": "no"}, {"items": [5]}, {"metadata": 5}])

    async def odd(*args: Any, **more: Any) -> dict[str, Any]:
        return next(shapes, {}) or await real(*args, **more)

    monkeypatch.setattr(bench.kube, "_request", odd)
    await bench.api.put_pod(make_pod("p", "c"))
    await bench.run()
    assert [pod.name for pod in bench.store.all()] == ["p"]


async def test_only_this_nodes_pods_are_asked_for(bench: Bench) -> None:
    await bench.run()
    await eventually(lambda: bench.api.watches == 1)
    assert all(s.query["fieldSelector"] == f"spec.nodeName={NODE}" for s in bench.api.seen)
    seconds = int(bench.api.seen[-1].query["timeoutSeconds"])
    assert 240 <= seconds <= 300


async def test_claims_that_only_one_pod_goes_on_to_use(bench: Bench) -> None:
    """What ends with a pod must not end for another one that shares its claim."""
    await bench.run()
    await bench.api.put_pod(make_pod("p", "own", "shared"))
    await bench.api.put_pod(make_pod("q", "shared"))
    await eventually(lambda: len(bench.store) == 2)
    p, q = bench.store.get("uid-p"), bench.store.get("uid-q")
    assert p is not None
    assert q is not None
    assert bench.store.only_its(p) == ["own"]
    await bench.api.change_pod("q", lambda q: q["metadata"].update(deletionTimestamp="t"))
    await eventually(lambda: "deleting q" in bench.told)
    assert bench.store.only_its(p) == ["own", "shared"]
