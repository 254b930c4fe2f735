from __future__ import annotations

from agent.demo.script import Rule
from agent.demo.stage import Stage
from tests.support.process import GPU, driver, node


async def test_what_did_not_come_is_noted_and_the_rest_goes_on() -> None:
    async with node() as world, driver(world, Rule("p", "no")):
        stage = Stage(world, False, "p")
        stage.add_pod(GPU)
        await stage.runs(0.1)
        stage.expect(False, "the impossible")
        stage.expect(True, "nothing to say")
        assert stage.differs == ["waited 0.1 s for: pod p to run", "expected: the impossible"]
        assert stage.sum == ""


async def test_counts_marks_and_the_sum() -> None:
    async with node() as world, driver(world, Rule("p", "no", times=2)):
        stage = Stage(world, False, "p")
        stage.add_pod(GPU)
        await stage.runs(5)
        stage.mark("me", "was here")
        assert stage.differs == []
        assert (stage.kubelet_calls, stage.driver_calls) == (3, 3)
        assert (stage.lines[0].what, stage.lines[-1].what) == ("created", "was here")
        assert "on a real node 120-180 s, for kubelet waits 2 time(s)" in stage.sum


async def test_without_a_wait_the_time_is_the_real_one() -> None:
    async with node() as world, driver(world):
        stage = Stage(world, False, "p")
        stage.add_pod(GPU)
        await stage.runs(5)
        assert stage.sum.endswith("the same on a real node.")
