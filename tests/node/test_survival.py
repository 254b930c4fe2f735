"""Agent, driver and kubelet end and come back; pods start and end all the same."""

from __future__ import annotations

import time
from collections.abc import Callable

from .harness import objects, steps
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.process import Process
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import stays, wait_for

DIRECT = "direct.example.com"
LIMIT = 30.0  # seconds until calls come through again; the aim is 5


def slice_uids(node: Node, driver: str = GPU) -> set[str]:
    return {found["metadata"]["uid"] for found in node.api.slices(driver)}


def registration(node: Node, dra: Agent, since: float, *, after_driver: bool = True) -> float:
    """Seconds from `since` (time.time()) until the kubelet's newest plugin was the agent."""
    return wait_for(
        lambda: steps.registered_at(node, steps.endpoints(dra), since, after_driver=after_driver),
        LIMIT,
        "the agent to be the kubelet's newest plugin",
    )


def start_seconds(node: Node, namespace: str, name: str) -> float:
    began = steps.create_pod(node, namespace, name)
    steps.wait_running(node, namespace, name)
    return time.monotonic() - began


def end_seconds(node: Node, namespace: str, name: str, gpu: Driver) -> float:
    claim = steps.claim_of(node, namespace, name)
    began = steps.delete_pod(node, namespace, name)
    wait_for(lambda: gpu.unprepares(claim), 60, f"unprepare of {name}")
    return time.monotonic() - began


def test_a_killed_agent_leaves_the_node_as_if_it_had_never_been_there(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    gpu = driver(GPU)
    usual_start = start_seconds(node, namespace, "usual")
    usual_end = end_seconds(node, namespace, "usual", gpu)
    dra = agent()
    steps.wait_served(dra)
    devices = slice_uids(node)
    through = start_seconds(node, namespace, "through")
    assert steps.agent_calls(dra) == 1

    calls, undone = steps.kubelet_calls(node), steps.kubelet_calls(node, method=UNPREPARE)
    dra.kill()
    start = start_seconds(node, namespace, "next")
    end = end_seconds(node, namespace, "through", gpu)
    assert [call.error for call in gpu.prepares(steps.claim_of(node, namespace, "next"))] == [""]
    # No second try of anything, which would also be late.
    assert steps.kubelet_calls(node) - calls == {"OK": 1}
    wait_for(
        lambda: steps.kubelet_calls(node, method=UNPREPARE) - undone == {"OK": 1},
        20,
        "the kubelet's count of its unprepare",
    )

    began = time.time()
    dra.start()
    back = registration(node, dra, began, after_driver=False)
    start_seconds(node, namespace, "again")
    end_seconds(node, namespace, "next", gpu)
    assert (steps.agent_calls(dra), steps.agent_calls(dra, UNPREPARE)) == (1, 1)
    assert slice_uids(node) == devices
    figures(
        f"pod start: {usual_start:.1f} s without an agent, {through:.1f} s through it, "
        f"{start:.1f} s after it was killed; end: {usual_end:.1f} s, {end:.1f} s after it was "
        f"killed; the agent's start to its registration: {back:.1f} s"
    )


def test_calls_come_through_again_after_a_restart_of_driver_and_kubelet(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    gpu, dra = driver(GPU), agent()
    steps.wait_served(dra)
    node.api.create(objects.claim(namespace, "shared", objects.claim_spec(GPU)))
    node.api.create(objects.pod(namespace, "first", claims=("shared",)))
    start_seconds(node, namespace, "own")
    steps.wait_running(node, namespace, "first")
    devices = slice_uids(node)

    gpu.stop()
    time.sleep(1)
    gpu.start()
    driver_back = registration(node, dra, steps.created_at(gpu.registration_socket))
    before = steps.agent_calls(dra)
    start_seconds(node, namespace, "after-driver")
    assert steps.agent_calls(dra) == before + 1
    assert slice_uids(node) == devices

    node.restart_kubelet(kill=True)
    started = steps.kubelet_log(node, "Plugin Watcher Start")[-1].at
    kubelet_back = registration(node, dra, started)
    before, undone = steps.agent_calls(dra), steps.agent_calls(dra, UNPREPARE)
    # The kubelet has forgotten that this claim is prepared, and the scheduler needs no free
    # device for it: those are gone until half a minute after the kubelet's start.
    node.api.create(objects.pod(namespace, "second", claims=("shared",)))
    steps.wait_running(node, namespace, "second")
    end_seconds(node, namespace, "own", gpu)
    assert steps.agent_calls(dra) == before + 1
    wait_for(lambda: steps.agent_calls(dra, UNPREPARE) == undone + 1, 20, "unprepare")
    assert dra.http("/livez")[0] == 200
    figures(
        f"calls through the agent again: {driver_back:.1f} s after the driver's new socket, "
        f"{kubelet_back:.1f} s after the kubelet's plugin watcher started"
    )


def test_a_driver_that_dies_in_a_prepare_and_returns_costs_no_second_call(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    gpu, dra = driver(GPU), agent(drivers={"driverAbsenceHold": "35s"})
    steps.wait_served(dra)
    devices = slice_uids(node)
    calls = steps.kubelet_calls(node)
    gpu.rules({"op": "prepare", "sleepMs": 40_000})
    steps.create_pod(node, namespace, "held")
    wait_for(gpu.arrivals, 20, "prepare at the driver")
    gpu.kill()
    killed = time.monotonic()
    gpu.heal()
    stays(lambda: node.api.phase(namespace, "held") == "Pending", 2)
    returned = time.monotonic()
    gpu.start()
    steps.wait_running(node, namespace, "held", 40)
    (call,) = gpu.prepares()
    assert steps.kubelet_calls(node) - calls == {"OK": 1}
    assert steps.agent_calls(dra) == 1
    assert len(gpu.arrivals()) == 2
    assert slice_uids(node) == devices
    figures(
        f"driver killed in a prepare and started again {returned - killed:.1f} s later: prepared "
        f"{call.t - steps.created_at(gpu.socket):.2f} s after its socket was there, one call of "
        "the kubelet"
    )


def test_a_driver_that_stays_away_loses_its_devices_as_without_an_agent(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    gpu, alone = driver(GPU), driver(DIRECT)
    dra = agent(drivers={"deny": [DIRECT]})
    steps.wait_served(dra)
    killed = time.monotonic()
    for each in (gpu, alone):
        each.kill()
    away: dict[str, float] = {}

    def wiped() -> bool:
        for name in (DIRECT, GPU):
            if name not in away and not node.api.slices(name):
                away[name] = time.monotonic() - killed
        return len(away) == 2

    wait_for(wiped, 120, "wipe of both")
    # Kubelet's 30 s begin when the agent lets go of its connections, 10 s after the driver's end.
    assert 28 < away[DIRECT] < away[GPU] < away[DIRECT] + 25
    assert not steps.served(dra)

    gpu.start()
    back = registration(node, dra, steps.created_at(gpu.registration_socket))
    start_seconds(node, namespace, "back")
    assert steps.agent_calls(dra) == 1
    figures(
        f"driver killed for good: devices wiped after {away[DIRECT]:.0f} s without the agent, "
        f"{away[GPU]:.0f} s with it; calls through the agent {back:.1f} s after its new socket"
    )


def test_a_second_agent_names_the_first_and_ends(node: Node, agent: Callable[..., Agent]) -> None:
    first, second = agent(), agent(start=False)
    second.authorize()
    second.process.start()
    assert second.process.wait(20) == 2
    last = second.log().strip().splitlines()[-1]
    assert f"pid {first.process.pid}" in last
    assert "another agent serves the drivers of this node" in last
    assert first.http("/readyz")[0] == 200


def test_sigterm_answers_the_call_in_flight_and_the_next_goes_to_the_driver(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    steps.wait_served(dra)
    devices = slice_uids(node)
    calls = steps.kubelet_calls(node)
    gpu.rules({"op": "prepare", "sleepMs": 4_000})
    steps.create_pod(node, namespace, "in-flight")
    wait_for(gpu.arrivals, 20, "prepare at the driver")
    assert stop(dra.process) == 0
    assert gpu.answers()[0]["code"] == 0, "the agent ended before the call did"
    assert steps.kubelet_calls(node) - calls == {"OK": 1}
    gpu.heal()
    steps.wait_running(node, namespace, "in-flight", 20)

    left = [*node.registry.glob("dra-agent~*"), *(node.plugins / "dra-agent.io").glob("*.sock")]
    assert left == []
    start_seconds(node, namespace, "next")
    end_seconds(node, namespace, "in-flight", gpu)
    assert steps.kubelet_calls(node) - calls == {"OK": 2}
    assert slice_uids(node) == devices


def stop(process: Process) -> int:
    """SIGTERM, waited for; unlike Process.stop() it never kills."""
    code = process.stop(25)
    assert code >= 0, "the agent did not end within 25 s"
    return code
