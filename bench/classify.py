"""What one classification costs, with all packs: `python bench/classify.py`.

Prints the mean, the 99th percentile and the worst over the corpus, then what a text of 64 KiB and
of 1 MiB cost, side by side: patterns see at most 8 KiB of a text, so the rest is only cleaned.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.commands import corpus
from agent.core.model import Failure
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules

ROUNDS = 20


def cost(judge: object, failure: Failure) -> float:
    """Milliseconds, the median of some runs."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        judge(failure)  # type: ignore[operator]
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def main() -> None:
    """Print the figures."""
    began = time.perf_counter()
    rules = load_rules(Rules())
    print(f"{len(rules.rules)} rules, loaded in {(time.perf_counter() - began) * 1e3:.0f} ms")
    entries = list(corpus.entries(corpus.builtin(), "corpus"))
    times = sorted(cost(rules.classify, entry.failure) for entry in entries)
    print(
        f"corpus, {len(times)} texts: mean {statistics.mean(times):.2f} ms, "
        f"p99 {times[int(len(times) * 0.99)]:.2f} ms, worst {times[-1]:.2f} ms"
    )
    first = entries[0].failure
    for name, unit in (
        ("words", "prepare devices failed: "),
        ("lines", "x\n"),
        ("bytes", "\0\x1b["),
    ):
        small = cost(rules.classify, replace(first, text=unit * ((1 << 16) // len(unit))))
        large = cost(rules.classify, replace(first, text=unit * ((1 << 20) // len(unit))))
        print(f"{name}: 64 KiB {small:.1f} ms, 1 MiB {large:.1f} ms")


if __name__ == "__main__":
    main()
