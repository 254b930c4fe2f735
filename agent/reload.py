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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from agent import names
from agent.core import text
from agent.core.annotation import stamp_micro
from agent.core.classify import RuleSet
from agent.errors import UserError
from agent.kube.client import Kube
from agent.kube.errors import KubeError
from agent.node import filewatch
from agent.proxy.context import Context
from agent.settings.load import load
from agent.settings.model import AgentConfig, NodeIdentity
from agent.settings.rulefiles import load_rules

log = logging.getLogger(__name__)

POLL = 60.0
"""Seconds between looks at the files when inotify is silent."""
_NOTE = 900  # bytes of an Event's note
_MAX_BYTES = 4 << 20  # of one file, as far as the fingerprint reads

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
        self._seen = self._fingerprint()
        self._pending: tuple[str, ...] = ()

    async def run(self) -> None:
        """Watch until cancelled; ends at once where there is no file."""
        if not self._files():
            return
        async for _ in filewatch.changes(self._directories, poll=POLL):
            await self.look()

    async def look(self) -> bool:
        """Read the files if they are not what was seen last; True when they were good and new."""
        seen = self._fingerprint()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            wanted = load(self._source.path, env=self._source.env, flags=self._source.flags)
            rules = load_rules(wanted.rules)
        except UserError as error:
            await self._refused(error)
            return False
        config, pending = merged(self.config, wanted)
        self.config = config
        self._seen = self._fingerprint()  # the rule files may be others now
        self._apply(config, rules)
        log.info("config reloaded", extra={"mode": config.mode, "rules": len(rules.rules)})
        if pending and pending != self._pending:
            log.warning("changed keys need a restart", extra={"keys": ", ".join(pending)})
        self._pending = pending
        await self._tell(_accepted(pending), True)
        return True

    async def _refused(self, error: UserError) -> None:
        for problem in error.problems:
            log.error("config refused, the old one stays: %s", problem)
        await self._tell(f"Refused, the old one stays. {'; '.join(error.problems)}", False)

    def _files(self) -> list[str]:
        own = [self._source.path] if self._source.path else []
        return own + list(self.config.rules.files)

    def _directories(self) -> set[str]:
        return {os.path.dirname(os.path.abspath(path)) for path in self._files()}

    def _fingerprint(self) -> str:
        """What the files hold now; one that cannot be read counts as its error."""
        mark = hashlib.sha256()
        for path in self._files():
            try:
                with open(path, "rb") as file:
                    content = file.read(_MAX_BYTES)
            except OSError as error:
                content = f"errno {error.errno}".encode()
            mark.update(f"{path}\0{len(content)}\0".encode() + content)
        return mark.hexdigest()


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
            "name": f"{identity.pod_name[:230]}.{mark}",
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
