from __future__ import annotations

from agent import names
from agent.demo.objects import add_pod
from agent.demo.processes import until
from tests.support.process import DRIVER, GPU, driver, node


async def test_a_restarted_kubelet_registers_again_and_keeps_running_pods() -> None:
    async with node() as world, driver(world):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        await world.restart_kubelet()
        await until(lambda: world.kubelet.plugins.pick(DRIVER), "registration")
        world.add_pod("q", GPU)
        await until(lambda: world.phase("q") == "Running", "the next to run")
        assert len(world.calls(DRIVER, pod="p")) == 1
        world.kubelet.worker("p").exit()
        await until(lambda: world.calls(DRIVER, names.UNPREPARE, "p"), "the old one's unprepare")


async def test_pods_of_other_nodes_are_not_its_business() -> None:
    async with node() as world, driver(world):
        add_pod(world.store, "other", "another-node", (GPU,))
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "ours to run")
        assert world.phase("other") == "Pending"
        assert [worker.name for worker in world.kubelet.pods.values()] == ["p"]


async def test_pods_of_one_driver_are_prepared_side_by_side() -> None:
    async with node() as world, driver(world):
        for name in ("a", "b", "c"):
            world.add_pod(name, GPU)
        for name in ("a", "b", "c"):
            await until(lambda name=name: world.phase(name) == "Running", name)  # type: ignore[misc]
        assert len(world.calls(DRIVER)) == 3
