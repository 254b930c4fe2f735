"""What the reporter remembers of one pod that had trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from agent.core.context import NOTHING, Context
from agent.core.history import Key
from agent.core.pods import Claim, Pod
from agent.core.record import PodRecord


@dataclass(slots=True)
class Entry:
    """Mutable; touched only in the event loop. Times are the loop's."""

    uid: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    claims: tuple[Claim, ...] | None = None  # as read from the API, None: not yet
    written: Pod | None = None  # answer to our last patch: our conditions and annotations
    said: Hashable = None  # what the last write said, without counters
    annotated: Hashable = None  # device states in the last annotation
    annotated_at: float = float("-inf")
    context: Context = NOTHING
    looked_at: Hashable = None  # the failures that the context is about
    escalated: frozenset[Key] = frozenset()  # what was called no longer normal
    outcome: dict[str, object] = field(default_factory=dict)  # the latest decision, for people
    outcomes: set[tuple[str, bool, str, str]] = field(default_factory=set)  # counted already
    events: set[str] = field(default_factory=set)
    replied_at: float = 0.0  # latest answer to kubelet about this pod
    trouble_at: float | None = None  # when the running call was first seen to fail
    suspended: bool = False  # a trigger cancelled the FailPod; the next fact decides afresh
    conflicts: int = 0
    refused: str = ""  # why the API server did not let us fail the pod
    done: bool = False  # nothing left to say for now
    failed: bool = False  # by us
    gone: bool = False  # the pod was deleted or ended

    def over(self, pod: Pod) -> Pod:
        """Return the pod with what we wrote ourselves, which the watch may not have yet."""
        if self.written is None:
            return pod
        return replace(
            pod, conditions=self.written.conditions, annotations=self.written.annotations
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One look at a pod: what we remember, the pod as it is now, and what is known of it."""

    entry: Entry
    pod: Pod
    record: PodRecord
