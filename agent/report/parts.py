"""What all parts of the reporter work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agent.core.pods import Claim, Pod
from agent.core.suspects import Suspects
from agent.kube.client import Kube
from agent.kube.errors import NotFound
from agent.kube.parse import parse_claim
from agent.kube.pods import PodStore
from agent.report.book import Book
from agent.report.hooks import Hooks
from agent.report.policy import Rules
from agent.report.ports import CallsPort


@dataclass(frozen=True, slots=True)
class Parts:
    """One set per reporter."""

    kube: Kube
    pods: PodStore
    calls: CallsPort
    book: Book
    rules: Rules
    suspects: Suspects
    hooks: Hooks
    wake_all: Callable[[], None]  # let every pod with trouble be looked at again

    def on_report(self, kind: str, result: str) -> None:
        """Count a write to the API server."""
        self.hooks.on_report(kind, result)

    def now(self) -> float:
        """The loop's clock, which facts use too."""
        return asyncio.get_running_loop().time()


async def read_claims(kube: Kube, pod: Pod) -> tuple[Claim, ...]:
    """Read all claims of a pod that exist."""
    found = []
    for name in pod.claims:
        try:
            found.append(parse_claim(await kube.get_claim(pod.namespace, name)))
        except NotFound:
            continue
    return tuple(found)
