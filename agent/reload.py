"""Config and rule files that change while the agent runs.

Rules and policies (mode, outcome, retry, per-driver settings, when reporting says that a failure
goes on) take effect with the next call. What is bound at start (registration, drivers served,
taints, tracing, HTTP, log, the rest of `report`) keeps its value, and the log says that a restart
is needed. A file with a mistake is refused as a whole; what was in force stays.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agent import names
from agent.core import text
from agent.core.annotation import stamp_micro
from agent.core.classify import RuleSet
from agent.core.status import event_name
from agent.errors import UserError
from agent.kube.client import Kube
from agent.kube.errors import KubeError
from agent.node import filewatch
from agent.proxy.context import Context
from agent.settings.load import collect
from agent.settings.model import AgentConfig, NodeIdentity
from agent.settings.rulefiles import load_rules

log = logging.getLogger(__name__)

POLL = 60.0
"""Seconds between looks at the files when inotify is silent."""
_NOTE = 900  # bytes of an Event's note
_MAX_BYTES = 4 << 20  # of one file, as far as changes are looked for

_REPORT = ("retrying_after", "escalate_after_attempts", "escalate_after")
"""Keys of `report` that can change."""

Apply = Callable[[AgentConfig, RuleSet], None]
Tell = Callable[[str, bool], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the config is from, so that it can be read again."""

    path: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)


FIXED = Source()
"""No file, so nothing that could change."""


class Reloader:
    """Reads the files again when they change, and says what became of it."""

    def __init__(
        self,
        source: Source,
        config: AgentConfig,
        *,
        apply: Apply,
        tell: Tell,
    ) -> None:
        """`apply` puts good settings in force; `tell` takes what became of a change."""
        self.config = config
        self._source = source
        self._apply = apply
        self._tell = tell
        self._files = self._named(config)
        self._seen = self._marks()
        self._pending: tuple[str, ...] = ()

    async def run(self) -> None:
        """Watch until cancelled; ends at once where there is no file."""
        if not self._files:
            return
        async for _ in filewatch.changes(self._directories, poll=POLL):
            await self.look()

    async def look(self) -> bool:
        """Read the files if they are not what was seen last; True when they were good and new."""
        try:
            if self._marks() == self._seen:
                return False
            wanted, rules = self._read()
            config, pending = merged(self.config, wanted)
            self._apply(config, rules)
        except UserError as error:
            await self._refused(error.problems)
            return False
        except Exception as error:  # a defect of ours: no reason to look at the files no more
            log.exception("a defect of the agent came up with this config")
            await self._refused([f"a defect of the agent: {type(error).__name__}: {error}"])
            return False
        self.config = config
        log.info("config reloaded", extra={"mode": config.mode, "rules": len(rules.rules)})
        if pending and pending != self._pending:
            log.warning("changed keys need a restart", extra={"keys": ", ".join(pending)})
        self._pending = pending
        await self._say(_accepted(pending), True)
        return True

    def _read(self) -> tuple[AgentConfig, RuleSet]:
        """Read the config and the rule files it names; UserError with all problems of all.

        What they held is noted before they are read, or a change in between would go unseen; so a
        config that names other files than the one before is read again with those noted.
        """
        for _ in range(2):
            self._seen = self._marks()
            config, problems = collect(
                self._source.path, env=self._source.env, flags=self._source.flags
            )
            before, self._files = self._files, self._named(config)
            if before == self._files:
                break
        try:
            rules = load_rules(config.rules)
        except UserError as error:
            problems += error.problems
        if problems:
            raise UserError(*problems)
        return config, rules

    async def _refused(self, problems: Sequence[str]) -> None:
        for problem in problems:
            log.error("config refused, the old one stays: %s", problem)
        await self._say(f"Refused, the old one stays. {'; '.join(problems)}", False)

    async def _say(self, said: str, accepted: bool) -> None:
        try:
            await self._tell(said, accepted)
        except Exception:
            log.exception("what became of the config could not be told")

    def _named(self, config: AgentConfig) -> tuple[str, ...]:
        """The config's file and those it names; what a refused one lacks may come later."""
        own = (self._source.path,) if self._source.path else ()
        return own + tuple(config.rules.files)

    def _directories(self) -> set[str]:
        return {os.path.dirname(os.path.abspath(path)) for path in self._files}

    def _marks(self) -> dict[str, str]:
        """What the files hold now; one that cannot be read counts as its error."""
        return {path: _mark(path) for path in self._files}


def _mark(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(_MAX_BYTES)).hexdigest()
    except (OSError, ValueError) as error:  # ValueError: cannot be a path
        return str(error)


def merged(old: AgentConfig, new: AgentConfig) -> tuple[AgentConfig, tuple[str, ...]]:
    """Return (the config in force from now on, keys whose change needs a restart)."""
    report = msgspec.structs.replace(
        old.report, **{name: getattr(new.report, name) for name in _REPORT}
    )
    drivers = msgspec.structs.replace(old.drivers, per_driver=new.drivers.per_driver)
    config = msgspec.structs.replace(
        old,
        mode=new.mode,
        outcome=new.outcome,
        retry=new.retry,
        rules=new.rules,
        report=report,
        drivers=drivers,
    )
    return config, tuple(sorted(_differ(config, new, "")))


def _differ(one: msgspec.Struct, other: msgspec.Struct, at: str) -> list[str]:
    found: list[str] = []
    pairs = zip(one.__struct_fields__, one.__struct_encode_fields__, strict=True)
    for name, key in pairs:
        left, right = getattr(one, name), getattr(other, name)
        if left == right:
            continue
        if isinstance(left, msgspec.Struct) and type(left) is type(right):
            found += _differ(left, right, f"{at}{key}.")
        else:
            found.append(f"{at}{key}")
    return found


def in_force(ctx: Context, config: AgentConfig, rules: RuleSet) -> None:
    """Let the next call go by other settings; one in flight keeps the plan that it has."""
    ctx.settings = config
    ctx.rules = rules
    ctx.held.periods(float(config.outcome.hold), float(config.outcome.hold_max))


async def tell(kube: Kube, identity: NodeIdentity, said: str, accepted: bool) -> None:
    """Write an Event on the agent's own pod, where that is known. Never raises."""
    if not (identity.pod_name and identity.pod_namespace):
        return
    body = event(identity, said, accepted, time.time())
    try:
        await kube.create_event(identity.pod_namespace, body)
    except KubeError as error:
        log.warning("no event about the config: %s", error)


def event(identity: NodeIdentity, said: str, accepted: bool, wall: float) -> dict[str, object]:
    """Event of events.k8s.io/v1 on the agent's own pod; a second one of the same words is a 409."""
    mark = hashlib.sha256(f"{identity.pod_uid}/{said}/{int(wall)}".encode()).hexdigest()[:16]
    return {
        "metadata": {
            "name": event_name(identity.pod_name, mark),
            "namespace": identity.pod_namespace,
        },
        "eventTime": stamp_micro(wall),
        "type": "Normal" if accepted else "Warning",
        "reason": "ConfigReloaded" if accepted else "ConfigRefused",
        "action": "Reload",
        "note": text.clean(said, _NOTE),
        "reportingController": names.EVENT_CONTROLLER,
        "reportingInstance": identity.node_name[:128] or "unknown",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": identity.pod_namespace,
            "name": identity.pod_name,
            "uid": identity.pod_uid,
        },
    }


def _accepted(pending: tuple[str, ...]) -> str:
    if not pending:
        return "New config and rules are in force."
    return f"New config and rules are in force; a restart is needed for {', '.join(pending)}."
