"""The bench's table: medians over rounds, and what they were measured on."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
LIBRARIES = ("grpclib", "h2", "uvloop", "opentelemetry-sdk", "protobuf", "prometheus-client")
OTHERS = "grpc-go 1.82.1, k8s.io/kubelet 0.37.2, Envoy 1.40.0 (one worker)"


def values(rounds: list[dict[str, Any]], peer: str, *keys: str) -> list[float]:
    """One figure of each round that has it."""
    found = []
    for entry in rounds:
        value: Any = entry[peer]
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found.append(float(value))
    return found


def cell(rounds: list[dict[str, Any]], peer: str, form: str, *keys: str) -> str:
    """Median [least-most]."""
    got = values(rounds, peer, *keys)
    if not got:
        return "-"
    middle = format(median(got), form)
    return middle if len(got) == 1 else f"{middle} [{min(got):{form}}-{max(got):{form}}]"


def ratio(rounds: list[dict[str, Any]], peer: str, other: str, *keys: str) -> str:
    """How many times another peer's median."""
    mine, theirs = values(rounds, peer, *keys), values(rounds, other, *keys)
    return f"{median(mine) / median(theirs):.2f}" if mine and theirs else "-"


def rows(head: list[str], lines: list[list[str]]) -> str:
    """A markdown table."""
    body = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in body) + "\n"


def machine() -> str:
    """Processor, cores, memory and versions."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", info)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"{model.group(1).strip() if model else platform.machine()}, {os.cpu_count()} CPUs,"
        f" {memory:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" CPython {platform.python_version()}, {libraries}; {OTHERS}."
    )


def render(rounds: list[dict[str, Any]], peers: list[str]) -> str:
    """All tables as markdown."""
    loads = ", ".join(f"{entry['load']:.1f}" for entry in rounds)
    note = f"{len(rounds)} rounds, load average before each: {loads}. {machine()}"

    def c(peer: str, form: str, *keys: str) -> str:
        return cell(rounds, peer, form, *keys)

    calls = rows(
        [
            *("peer", "p50 µs", "p99 µs", "added p50 µs", "64 in flight: calls/s"),
            *("p99 ms", "500 claims: p50 ms", "CPU s per 1000 calls", "same, 64 in flight"),
        ],
        [
            [
                peer,
                *(c(peer, ".0f", "seq", "p50"), c(peer, ".0f", "seq", "p99")),
                f"{median(values(rounds, peer, 'seq', 'p50')) - direct:.0f}" if direct else "-",
                c(peer, ".0f", "conc", "rate"),
                f"{median(values(rounds, peer, 'conc', 'p99')) / 1000:.1f}",
                f"{median(values(rounds, peer, 'large', 'p50')) / 1000:.2f}",
                *(c(peer, ".3f", "seq", "cpu"), c(peer, ".3f", "conc", "cpu")),
            ]
            for peer in peers
            for direct in [
                median(values(rounds, "direct", "seq", "p50")) if "direct" in peers else 0
            ]
        ],
    )
    process = rows(
        [
            *("peer", "RSS idle MiB", "after 50,000 calls", "exec to first answer ms"),
            *("50 streams: CPU %", "forwarding check"),
        ],
        [
            [
                peer,
                *(c(peer, ".1f", "idle"), c(peer, ".1f", "after"), c(peer, ".0f", "start")),
                c(peer, ".1f", "stream_cpu"),
                "ok" if not any(entry[peer]["check"] for entry in rounds) else "FAILED",
            ]
            for peer in peers
        ],
    )
    ratios = ""
    if "agent" in peers:
        others = [peer for peer in peers if peer != "agent"]
        ratios = rows(
            ["agent ÷", *others],
            [
                [name, *(ratio(rounds, "agent", other, *keys) for other in others)]
                for name, keys in (
                    ("p50, one call", ("seq", "p50")),
                    ("calls/s, 64 in flight", ("conc", "rate")),
                    ("p50, 500 claims", ("large", "p50")),
                    ("CPU, one call", ("seq", "cpu")),
                    ("RSS after 50,000 calls", ("after",)),
                )
            ],
        )
    return f"{note}\n\n{calls}\n{process}\n{ratios}"


def write(path: Path, text: str) -> None:
    """Put the tables between the marks of a document."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
