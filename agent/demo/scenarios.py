"""The stories: each plays on a node with and on one without the agent, and says what must come."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent import names
from agent.demo.objects import Want
from agent.demo.script import Rule
from agent.demo.stage import Stage

GPU = "gpu.example.com"
NIC = "nic.example.com"
LOST_CALL = 60.0  # seconds; longer than any deadline: the driver is killed before it answers

BUSY = "prepare failed: gpu-1 is being reset: resource temporarily unavailable"
BAD_CONFIG = (
    "prepare failed: error applying config: error validating GPU config: "
    "invalid partition count: -1"
)
BAD_DEVICE = "prepare failed: requested device is not allocatable: gpu-5"

RULES = {
    GPU: (
        Rule(match="busy", error=BUSY, times=3),
        Rule(match="bad-config", error=BAD_CONFIG),
        Rule(match="gpu-5", error=BAD_DEVICE),
    ),
    NIC: (Rule(match="restart", delay=LOST_CALL),),
}
"""How the drivers of both nodes behave from the start."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story and its pod. `about` is read before the timelines."""

    title: str
    about: str
    pod: str
    play: Callable[[Stage], Awaitable[None]]
    only_with_agent: bool = False


async def healthy(stage: Stage) -> None:
    """Nothing is wrong."""
    stage.add_pod(Want("gpu", GPU, ("gpu-0",)))
    await stage.runs(5.0)
    stage.expect(stage.kubelet_calls == 1, "one call by kubelet")
    stage.expect(stage.driver_calls == 1, "one call at the driver")
    stage.expect(not stage.world.condition(stage.pod), "nothing written to the pod by the agent")


async def transient(stage: Stage) -> None:
    """The driver fails three times and then works."""
    stage.add_pod(Want("gpu", GPU, ("gpu-1",)))
    resync = stage.world.periods.resync
    await stage.runs(3 * resync[1] + 5.0)
    stage.expect(stage.driver_calls == 4, "four calls at the driver")
    wanted = 1 if stage.agent else 4
    stage.expect(stage.kubelet_calls == wanted, f"{wanted} call(s) by kubelet")


async def parameters(stage: Stage) -> None:
    """The claim's parameters are wrong: no retry can help."""
    stage.add_pod(Want("gpu", GPU, ("gpu-2",)))
    world = stage.world
    if not stage.agent:
        await _never(stage)
        return
    came = await stage.until(
        lambda: world.phase(stage.pod) == "Failed" and world.calls(GPU, names.UNPREPARE, stage.pod),
        "the pod to be Failed and unprepared",
        8.0,
    )
    await stage.until(
        lambda: (world.pod(stage.pod) or {})["status"].get("reason") == names.PHASE_REASON,
        f"the pod's reason to be {names.PHASE_REASON}",
        3.0,
    )
    stage.expect(not came or stage.driver_calls == 1, "one call at the driver")
    stage.expect(world.condition(stage.pod).get("status") == "False", "a False condition")
    stage.expect(
        world.condition(stage.pod, names.CONDITION_INVALID_PARAMETERS).get("status") == "True",
        f"{names.CONDITION_INVALID_PARAMETERS} is True",
    )
    stage.expect(
        not any(name.startswith(stage.pod) for name in _claims(stage)), "the claim is released"
    )


async def device(stage: Stage) -> None:
    """One of the pod's two devices is broken."""
    stage.add_pod(Want("gpu", GPU, ("gpu-4", "gpu-5")))
    world = stage.world
    if not stage.agent:
        await _never(stage)
        return
    await stage.until(
        lambda: world.condition(stage.pod).get("status") == "False", "a False condition", 8.0
    )
    await stage.until(lambda: stage.kubelet_calls >= 3, "kubelet to ask again", 8.0)
    stage.expect(stage.driver_calls == 1, "one call at the driver: its verdict is held")
    stage.expect(
        world.phase(stage.pod) == "Pending",
        "the pod is not failed: its replacement would get the same device again",
    )


async def driver_restart(stage: Stage) -> None:
    """The driver is killed while it works on the call, and comes back."""
    stage.add_pod(Want("nic", NIC, ("nic-0",)))
    world = stage.world
    await stage.until(lambda: stage.driver_calls == 1, "the driver to be called", 5.0)
    world.drivers[NIC].send(signal.SIGKILL)
    stage.mark("driver", "is killed (SIGKILL)")
    await world.drivers[NIC].wait()
    world.script(NIC)
    stage.mark("driver", "is started again")
    await world.start_driver(NIC)
    await stage.runs(world.periods.resync[1] + 8.0)
    if stage.agent:
        stage.expect(stage.kubelet_calls == 1, "one call by kubelet")
    else:  # more than two where the driver takes longer to start than kubelet waits
        stage.expect(stage.kubelet_calls >= 2, "a second call by kubelet")


async def agent_killed(stage: Stage) -> None:
    """The agent dies without a word; nobody misses it."""
    world = stage.world
    await world.kill_agent()
    stage.mark("agent", "is killed (SIGKILL), its sockets stay behind")
    await stage.until(
        lambda: not world.through_agent(GPU), "kubelet to see the agent's connection end", 3.0
    )
    stage.add_pod(Want("gpu", GPU, ("gpu-6",)))
    await stage.runs(3.0)
    stage.expect(stage.kubelet_calls == 1, "one call by kubelet")
    stage.mark("kubelet", "ends the pod 'healthy' of the first story, prepared through the agent")
    world.kubelet.worker("healthy").exit()
    await stage.until(
        lambda: world.phase("healthy") == "Succeeded", "the older pod to be unprepared", 5.0
    )
    if world.calls(GPU, names.UNPREPARE, "healthy"):
        stage.mark("driver", "unprepares that pod's claim, called by kubelet directly")
    else:
        stage.expect(False, "its unprepare at the driver")


async def _never(stage: Stage) -> None:
    """Without an agent kubelet asks for ever, and the pod says nothing."""
    limit = 2 * stage.world.periods.resync[1] + 5.0
    await stage.until(lambda: stage.driver_calls >= 3, "the driver's third call", limit)
    stage.expect(stage.world.phase(stage.pod) == "Pending", "the pod is still Pending")
    stage.mark("pod", "still Pending, nothing in its status; so it goes on for ever")


def _claims(stage: Stage) -> list[str]:
    claims = stage.world.store.list("resourceclaims")
    return [claim["metadata"]["name"] for claim in claims]


SCENARIOS = (
    Scenario(
        "Healthy",
        "The call passes unchanged; the agent writes nothing.",
        "healthy",
        healthy,
    ),
    Scenario(
        "Transient: the driver is busy three times",
        "The agent asks again inside the one call that kubelet makes.",
        "busy",
        transient,
    ),
    Scenario(
        "Permanent: parameters that no device can have (mode enforce)",
        "The agent says so in the pod, and fails it once: asking again cannot help.",
        "bad-config",
        parameters,
    ),
    Scenario(
        "Permanent: one of two devices is broken",
        "The agent says which one. It answers kubelet's repeats without asking the driver again.",
        "bad-device",
        device,
    ),
    Scenario(
        "The driver is killed during a prepare and comes back",
        "The agent holds kubelet's call until the driver is there again.",
        "restart",
        driver_restart,
    ),
    Scenario(
        "The agent is killed",
        "Kubelet calls the driver directly from then on, for old and new pods.",
        "after-kill",
        agent_killed,
        only_with_agent=True,
    ),
)
