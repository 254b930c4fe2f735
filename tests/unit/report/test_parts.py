from __future__ import annotations

from pathlib import Path

from agent.kube.parse import parse_pod
from agent.report.parts import read_claims
from tests.support.kube_api import make_claim, make_pod
from tests.support.kube_bench import bench, config


async def test_claims_that_are_gone_are_left_out(tmp_path: Path) -> None:
    async with bench(tmp_path, config()) as made:
        made.api.put_claim(make_claim("a", "p", "gpu-0"))
        found = await read_claims(made.kube, parse_pod(make_pod("p", "a", "b")))
        assert [each.name for each in found] == ["a"]
