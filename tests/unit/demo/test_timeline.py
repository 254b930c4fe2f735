from __future__ import annotations

from agent import names
from agent.demo.objects import NAMESPACE
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.timeline import Entry, collect, created
from agent.demo.world import World
from tests.support.process import DRIVER, GPU, driver, node


def told(world: World, pod: str = "p") -> list[tuple[str, str]]:
    return [(entry.who, entry.what) for entry in collect(world, pod, (DRIVER,))]


async def test_a_failure_and_its_end_in_order() -> None:
    rule = Rule("p", "prepare failed: no", times=1)
    async with node() as world, driver(world, rule):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        who = [who for who, _ in told(world)]
        assert who == ["pod", "kubelet", "driver", "kubelet", "kubelet", "driver", "pod"]
        lines = [what for _, what in told(world)]
        assert lines[2] == "prepare 1 fails: no"
        assert lines[3] == "passes this on as an Event, and waits"
        assert lines[4].startswith("calls again 0.")
        assert "60-90 s" in lines[4]
        assert collect(world, "p", ())[0] == Entry(created(world, "p"), "pod", "created")


async def test_what_the_agent_writes_and_what_follows() -> None:
    async with node() as world:
        world.add_pod("p", GPU)
        world.add_pod("p2", GPU)
        await until(lambda: any(who == "kubelet" for who, _ in told(world)), "the first try")
        assert (
            "kubelet",
            f"writes an Event, and waits: DRA driver {DRIVER} is not registered",
        ) in (told(world))
        condition = {"type": names.CONDITION_PREPARED, "status": "False", "reason": "R"}
        status = {"phase": "Failed", "reason": "X", "conditions": [condition]}
        annotations = {names.ANNOTATION_FAILURES: "{}"}
        patch = {"metadata": {"annotations": annotations}, "status": status}
        world.store.patch_status(("pods", NAMESPACE, "p"), patch)
        await until(lambda: not world.store.list("resourceclaims")[1:], "the claim to go")
        lines = [what for _, what in told(world)]
        for line in (
            "writes DevicesPrepared = False (R)",
            "writes phase = Failed (X)",
            "writes annotation = device-failures",
            "claim p-gpu is released",
        ):
            assert line in lines
        assert "claim p2-gpu is released" not in lines


async def test_a_call_without_an_answer_and_an_early_retry() -> None:
    async with node() as world, driver(world, Rule("p", "no")):
        world.add_pod("p", GPU)
        await until(lambda: world.calls(DRIVER), "the first try")
        meta = {"annotations": {"x": "1"}}
        world.store.patch_status(("pods", NAMESPACE, "p"), {"metadata": meta})
        await until(lambda: len(world.calls(DRIVER)) == 2, "the second try")
        lines = [what for _, what in told(world)]
        assert "calls again at once: an annotation of the pod changed" in lines
        world.script(DRIVER, Rule("q", delay=60))
        world.add_pod("q", GPU)
        await until(lambda: world.calls(DRIVER, pod="q"), "the call")
        assert ("driver", "prepare 1 begins, no answer") in told(world, "q")
