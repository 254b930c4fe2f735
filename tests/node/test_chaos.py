"""Nothing is lost, doubled or left over, whatever ends when."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .chaos import audit, faults
from .chaos.faults import Liveness, World
from .chaos.load import SCRIPT, Load
from .harness import steps
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.forward import Forwarder
from .harness.waiting import wait_for

SERVED = ("gpu.example.com", "nic.example.com")
SHORT, MEDIUM, LONG = 60.0, 5 * 60.0, 30 * 60.0  # seconds of faults
SETTLE = 150.0  # the kubelet's own back-off after a failed registration ends at 122 s
FIRST_SEED = 20_240_617


def seed() -> int:
    return int(os.environ.get("DRA_CHAOS_SEED") or FIRST_SEED)


def duration(usual: float) -> float:
    return float(os.environ.get("DRA_CHAOS_SECONDS") or usual)


@pytest.fixture
def small_disk(node: Node) -> Iterator[Path]:
    """The agent's folder, and the kubelet's registry, on disks that take some sixty files."""
    folder = node.plugins / "dra-agent.io"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    node.stop_kubelet()  # it watches the folder that is there when it starts
    options = "size=256k,nr_inodes=60,mode=700"
    for place in (folder, node.registry):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "dra-small", place], check=True)
    node.start_kubelet()
    yield folder
    node.stop_kubelet()
    for place in (folder, node.registry):
        subprocess.run(["umount", "-l", place], check=True)
    node.start_kubelet()


@pytest.mark.timeout(LONG + 900)
@pytest.mark.parametrize(
    ("mode", "usual"),
    [
        ("overlay", SHORT),
        pytest.param("overlay", LONG, marks=pytest.mark.slow),
        pytest.param("intake", MEDIUM, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_doubled_or_left_over(
    small_disk: Path,
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    forwarder: Forwarder,
    figures: Callable[[str], None],
    mode: str,
    usual: float,
) -> None:
    rng = random.Random(seed())
    registry = small_disk / "intake" if mode == "intake" else None
    dra = agent(server=forwarder.server, drivers={"deny": ["alone-*"]}, registration=mode)
    pairs = [
        (driver(name, devices=6, registry=registry), driver(f"alone-{name}")) for name in SERVED
    ]
    for name, (served, _) in zip(SERVED, pairs, strict=True):
        served.rules(*SCRIPT)
        steps.wait_served(dra, name)
    names = [each.name for pair in pairs for each in pair]
    before = audit.wipes(node, names)
    load = Load(node, namespace, SERVED, rng)
    liveness = Liveness(dra)
    world = World(
        node=node,
        agent=dra,
        liveness=liveness,
        forwarder=forwarder,
        drivers=pairs,
        endpoints=small_disk,
        rng=rng,
        certain=(*faults.CERTAIN, *([faults.AWAY] if usual > SHORT else [])),
    )
    liveness.start()
    load.start()
    seconds = duration(usual)
    try:
        run(load, world, seconds)
        settle(load, world)
        wait_for(lambda: audit.devices_there(node, names), 60, "devices of all drivers")
        for name in SERVED:
            steps.wait_served(dra, name, 30)
        wait_for(lambda: idle(dra), 30, "no call in the agent")
    finally:
        liveness.stop()
        figures(
            f"chaos: {mode}, seed {seed()}, {seconds:.0f} s: {dict(sorted(world.counts.items()))}"
        )
        wiped = audit.wipes(node, names) - before
        figures(f"chaos: {dict(load.counts())}; devices wiped: {dict(wiped)}")
        print("\n".join(world.started))

    held = {pair[0].name: audit.replay(pair[0].entries()) for pair in pairs}
    figures(
        "chaos: claims prepared and unprepared: "
        + ", ".join(f"{name} {h.prepared}, {h.unprepared}" for name, h in held.items())
    )
    assert load.wrong() == []
    if world.counts[faults.LOSS]:
        assert any(wiped[f"alone-{name}"] for name in SERVED), "no driver lost its devices"
    for name, holdings in held.items():
        assert holdings.doubled == [], f"{name}: devices prepared for two claims at a time"
        assert holdings.late == [], f"{name}: prepared after an unprepare"
        assert holdings.held == {}, f"{name}: devices left prepared without a pod"
        lost, directly = wiped[name], wiped[f"alone-{name}"]
        assert lost <= directly, f"{name}: ResourceSlices lost {lost} times, directly {directly}"
    assert world.counts["hung agent not ended by its probe"] == 0
    assert world.counts["agent ended by SIGKILL after SIGTERM"] == 0
    assert checkpoint(node) == []
    assert dra.log().count("Traceback") == 0
    assert dra.stop(25) == 0
    assert sockets(node) == []


def run(load: Load, world: World, seconds: float) -> None:
    """Faults at random moments, one more about every two seconds."""
    began = time.monotonic()
    next_at = began + 2
    while time.monotonic() < began + seconds:
        world.heal()
        load.tick()
        if time.monotonic() > next_at:
            world.hurt()
            next_at = time.monotonic() + world.rng.uniform(0.5, 4)
        time.sleep(0.2)


def settle(load: Load, world: World) -> None:
    """All is well again; every pod reaches its state and is ended."""
    load.creating = False
    while world.due:
        world.heal(all_of_it=True)

    def over() -> bool:
        load.tick()
        return not load.open

    wait_for(over, SETTLE, "the end of all pods", every=0.3)


def idle(dra: Agent) -> bool:
    state = dra.state()
    return not state["calls"] and not state["tasks"]


def checkpoint(node: Node) -> list[object]:
    stored = json.loads((node.kubelet_root / "dra_manager_state").read_text())
    return list(json.loads(stored["Data"])["ClaimInfoStateList"] or [])


def sockets(node: Node) -> list[Path]:
    own = node.plugins / "dra-agent.io"
    return [*node.registry.glob("dra-agent~*"), *own.glob("*.sock"), *own.glob(f"{faults.FILLED}*")]


def test_the_replay_sees_what_it_is_for() -> None:
    def entry(op: str, uid: str, *devices: str, error: str = "") -> audit.Entry:
        return {"m": op, "claim": uid, "uid": uid, "devices": list(devices), "error": error}

    fine = [entry("prepare", "a", "x"), entry("unprepare", "a"), entry("prepare", "b", "x")]
    seen = audit.replay(fine)
    assert (seen.doubled, seen.late, seen.held) == ([], [], {"x": "b"})
    failed = entry("prepare", "b", "x", error="no")
    assert audit.replay([entry("prepare", "a", "x"), failed]).doubled == []
    assert audit.replay([entry("prepare", "a", "x"), entry("prepare", "b", "x")]).doubled
    assert audit.replay([*fine[:2], entry("prepare", "a", "x")]).late == ["a (a)"]


def test_every_fault_has_a_weight() -> None:
    assert faults.WEIGHTS.keys() | {faults.AWAY} == faults.FAULTS.keys()
    assert set(faults.CERTAIN) <= faults.FAULTS.keys()
