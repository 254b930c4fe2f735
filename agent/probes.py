"""What /livez, /readyz and /debug/state answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import agent
from agent import names
from agent.errors import TransportError
from agent.kube.pods import PodStore
from agent.node.registry import Registry
from agent.observe.metrics import Metrics
from agent.observe.web import Check
from agent.proxy.context import Context
from agent.report.bypass import BypassWatch
from agent.report.reporter import Reporter
from agent.rpc.channel import Channel
from agent.settings.model import NodeIdentity

_DIAL = 1.0  # seconds for one self-dial; the kubelet's own probe limit is larger
_LAG_TIMER = 0.01  # seconds

CONNECT = "connect to the API server"
"""Name of the task that makes reporting work."""


class AgentProbes:
    """Satisfies observe.web's Probes. `pods` and `reporter` come once the API is connected."""

    def __init__(self, identity: NodeIdentity, registry: Registry, ctx: Context) -> None:
        self._identity = identity
        self._registry = registry
        self._ctx = ctx
        self._metrics: Metrics = ctx.metrics
        self._since = time.monotonic()
        self.pods: PodStore | None = None
        self.reporter: Reporter | None = None
        self.bypass: BypassWatch | None = None
        self.reporting = "starting"
        self.crashed: dict[str, str] = {}

    def crash(self, name: str, error: BaseException) -> None:
        """A task of the agent ended by a defect: it is not ready any more."""
        self.crashed[name] = f"{type(error).__name__}: {error}"
        if name == CONNECT:
            self.reporting = "off: connecting to the API server crashed"

    async def live(self) -> Sequence[Check]:
        """Dial each endpoint that listens and have the agent itself answer through it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(_LAG_TIMER)
        self._metrics.loop_lag(max(0.0, loop.time() - began - _LAG_TIMER))
        checks = [Check("event-loop", ok=True)]
        for name, link in list(self._registry.links.items()):
            for path in link.endpoints:
                checks.append(await _dial(f"endpoint/{name}", path))
        return checks

    def ready(self) -> Sequence[Check]:
        """Listening and watching. A broken driver is shown, but never makes the agent unready."""
        watching = self._registry.watching
        checks = [Check("registry", watching, "" if watching else "not read yet")]
        pods = self.pods
        if pods is not None:
            text = pods.failing or ("" if pods.synced else "no complete list of pods yet")
            # Calls go through without the API server (rule 19), so it does not affect readiness
            # once the agent was ready; before that a wrong right shows as "not ready".
            checks.append(Check("pods", pods.synced, text, affects=not pods.failing))
        else:
            checks.append(Check("reporting", ok=CONNECT not in self.crashed, text=self.reporting))
        for name, link in self._registry.links.items():
            away = link.away_since is not None
            checks.append(Check(f"driver/{name}", not away, "away" if away else "", affects=False))
            fine = link.registered
            text = "" if fine else "kubelet has not registered the agent"
            checks.append(Check(f"registered/{name}", fine, text, affects=False))
            checks.extend(self._bypassed(name))
        for path, name in self._registry.direct.items():
            text = f"it registers with kubelet itself: {path}"
            checks.append(Check(f"direct/{name}", ok=False, text=text, affects=False))
        checks.extend(Check(f"task/{n}", ok=False, text=t) for n, t in self.crashed.items())
        return checks

    def _bypassed(self, driver: str) -> Iterator[Check]:
        """Whether calls of a driver passed the agent by; only where it ever happened."""
        if self.bypass is not None and (count := self.bypass.found.get(driver)):
            text = f"seen {count} times that kubelet called the driver itself"
            ok = not self.bypass.recent(driver)
            yield Check(f"bypass/{driver}", ok, text, affects=False)

    def state(self) -> dict[str, object]:
        """Everything a person may want to know of this agent."""
        ctx, now = self._ctx, asyncio.get_running_loop().time()
        return {
            "version": agent.__version__,
            "node": self._identity.node_name,
            "mode": ctx.settings.mode,
            "upSeconds": round(time.monotonic() - self._since, 1),
            "stopping": ctx.stopping,
            "reporting": self.reporting,
            "registration": self._registry.describe(),
            "calls": [
                {"driver": call.driver, "claims": [f"{c.namespace}/{c.name}" for c in call.claims]}
                for call in ctx.live
            ],
            "held": ctx.held.describe(now),
            "pods": self.reporter.state() if self.reporter else [],
            "suspects": self.reporter.suspects() if self.reporter else [],
            "tasks": ctx.tasks.names,
        }

    def metrics(self) -> bytes:
        """The Prometheus exposition."""
        if self.reporter is not None:
            self._metrics.report_queue(self.reporter.queue_length)
        return self._metrics.render()


async def _dial(name: str, path: str) -> Check:
    channel = Channel(path)
    try:
        async with asyncio.timeout(_DIAL):
            await channel.connect()
            answer = await channel.unary(names.PING_METHOD, b"", timeout=_DIAL)
    except (TransportError, TimeoutError) as error:
        return Check(name, ok=False, text=str(error) or "no answer")
    finally:
        await channel.close()
    return Check(name, answer.status is None, answer.status.message if answer.status else "")
