from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.report import bypass
from agent.report.bypass import BypassWatch
from tests.support.kube_api import Fault, eventually, start_container
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import GPU, NET


class Watched:
    def __init__(self, made: Bench) -> None:
        self.bench = made
        self.passed: set[tuple[str, str]] = set()
        self.renewed: list[tuple[str, str]] = []
        self.watch = BypassWatch(
            made.kube,
            made.pods,
            made.calls,
            passed=lambda namespace, name: (namespace, name) in self.passed,
            renew=lambda driver, why: self.renewed.append((driver, why)),
        )

    async def start(self, pod: str, *devices: str) -> None:
        await self.bench.pod(pod, *devices)
        await self.bench.api.change_pod(pod, start_container)
        await eventually(lambda: self.bench.pods.get(f"uid-{pod}").started)  # type: ignore[union-attr]

    def reads(self) -> int:
        return len([p for p in self.bench.api.reads() if "resourceclaims" in p])


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    async with bench(tmp_path, config("observe")) as made:
        found = Watched(made)
        yield found
        await found.watch.close()


async def test_evidence_renews_once_in_a_while(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.start("p", "gpu-0")
    await eventually(lambda: watched.renewed == [(GPU, "bypass")])
    await watched.start("q", "gpu-1")
    await watched.bench.quiet()
    assert watched.reads() == 1
    monkeypatch.setattr(bypass, "PAUSE", 0.0)
    await watched.start("r", "gpu-2")
    await eventually(lambda: len(watched.renewed) == 2)
    assert watched.watch.found == {GPU: 2}


async def test_a_claim_that_passed_us_costs_nothing(watched: Watched) -> None:
    watched.passed.add(("ns", "p-0"))
    await watched.start("p", "gpu-0")
    await watched.bench.quiet()
    assert (watched.renewed, watched.reads()) == ([], 0)


async def test_other_drivers_do_not_concern_us(watched: Watched) -> None:
    await watched.start("p", f"{NET}/eth0")
    await watched.bench.quiet()
    assert watched.renewed == []
    watched.bench.calls.served = set()
    await watched.start("q", "gpu-0")
    await watched.bench.quiet()
    assert (watched.renewed, watched.reads()) == ([], 1)


async def test_pods_that_ran_before_us_are_no_evidence(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as first:
        await first.pod("p")
        await first.api.change_pod("p", start_container)
        second = Bench(first.api, first.kube, config("observe"))
        found = Watched(second)
        await second.run()
        await second.quiet()
        assert found.renewed == []
        await second.tasks.close()
        await found.watch.close()


async def test_an_api_error_is_no_evidence(watched: Watched) -> None:
    watched.bench.api.faults.append(Fault("GET", "resourceclaims", 500))
    await watched.start("p", "gpu-0")
    await watched.bench.quiet()
    assert watched.renewed == []
    await watched.start("q", "gpu-0")
    await eventually(lambda: watched.renewed)
