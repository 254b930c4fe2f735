"""Wiring: builds the parts, runs them, ends them in order. The only place that knows all parts."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Iterable

import uvloop

import agent
from agent.aio import Tasks
from agent.core.classify import RuleSet
from agent.core.held import HeldVerdicts
from agent.errors import UserError
from agent.kube.client import Kube
from agent.kube.pods import PodStore
from agent.node.hooks import Hooks
from agent.node.link import Link
from agent.node.registry import Registry
from agent.observe import logs, tracing
from agent.observe.metrics import Metrics
from agent.observe.web import Web
from agent.probes import CONNECT, AgentProbes
from agent.proxy.context import Backlog, Context, LogOnly
from agent.proxy.flights import Flights
from agent.proxy.proxy import Proxy
from agent.reload import FIXED, Reloader, Source, in_force, tell
from agent.report.bypass import BypassWatch
from agent.report.hooks import Hooks as ReportHooks
from agent.report.nudge import Nudger
from agent.report.reporter import Reporter
from agent.settings.model import AgentConfig, NodeIdentity
from agent.settings.rulefiles import load_rules

log = logging.getLogger("agent")

_FLUSH = 3.0  # seconds that reports, and then traces, may take at the end
_EXIT_USER = 2
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # of these, the last: a terminal is closed


def run(config: AgentConfig, identity: NodeIdentity, source: Source = FIXED) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; returns the exit code. A second one ends at once."""
    logs.setup(config.log.level, config.log.format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(App(config, identity, source).main())
    except UserError as error:
        for problem in error.problems:
            print(f"dra-agent: {problem}", file=sys.stderr)
        return _EXIT_USER


class App:
    """One agent."""

    def __init__(self, config: AgentConfig, identity: NodeIdentity, source: Source = FIXED) -> None:
        self._config = config
        self._identity = identity
        self._stop = asyncio.Event()
        self._tasks = Tasks(self._crashed)
        metrics = Metrics()
        calls = Tasks()
        self.ctx = Context(
            settings=config,
            rules=load_rules(config.rules),
            metrics=metrics,
            tracing=tracing.make(config.tracing, identity, os.environ),
            tasks=calls,
            flights=Flights(calls),
            held=HeldVerdicts(config.outcome.hold, config.outcome.hold_max),
            random=random.random,
            wall=time.time,
        )
        self.proxy = Proxy(self.ctx, self._links)
        self.nudger = Nudger(config.report.nudge, self.proxy, on_nudge=metrics.nudge)
        self.registry = Registry(
            settings=config,
            identity=identity,
            handlers=self.proxy,
            on_trigger=self._triggered,
            hooks=Hooks(
                on_generation=metrics.renewal,
                on_driver=self._driver,
                on_registered=metrics.registered,
                on_gone=metrics.driver_gone,
                on_ready=self.nudger.ready,
                on_direct=metrics.bypass,
                on_crash=self._crashed,
            ),
        )
        self.probes = AgentProbes(identity, self.registry, self.ctx)
        self._reload = Reloader(source, config, apply=self._reloaded, tell=self._tell)
        self.reporter: Reporter | None = None
        self._kube: Kube | None = None
        self._bypass: BypassWatch | None = None

    async def main(self) -> int:
        """Start, wait for a signal or the end of the registry, stop."""
        loop = asyncio.get_running_loop()
        for number in _ENDS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as by nohup
                loop.add_signal_handler(number, self._signalled, number)
        web = Web(self._config.http.listen, self.probes) if self._config.http.listen else None
        self.registry.open()
        try:
            log.info("starting", extra=self._about())
            if web is not None:
                port = await web.start()
                host = self._config.http.listen.rpartition(":")[0]
                log.info("http listening", extra={"host": host, "port": port})
            serving = self._tasks.start("registry", self.registry.run())
            self._tasks.start(CONNECT, self._connect())
            self._tasks.start("config watch", self._reload.run())
            stop = self._tasks.start("stop signal", self._stop.wait())
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # raises what ended it: a UserError, or a defect
            await self._drain()
            return 0
        finally:
            await self._close(web)

    def _about(self) -> dict[str, object]:
        return {
            "version": agent.__version__,
            "node": self._identity.node_name,
            "mode": self._config.mode,
            "registration": self._config.registration_settings.kind,
        }

    async def _connect(self) -> None:
        """The API side comes after the sockets: its import alone takes a while."""
        config, probes = self._config, self.probes
        kube = None
        if config.report.enabled:
            on_request = self.ctx.metrics.kube_request
            try:
                kube = await Kube.open(kubeconfig=config.report.kubeconfig, on_request=on_request)
            except UserError as error:
                probes.reporting = f"off: {'; '.join(error.problems)}"
                self._fatal(error)
                return
        if kube is None:
            why = "no API access is configured" if config.report.enabled else "switched off"
            probes.reporting = f"off: {why}"
            self.ctx.sink = LogOnly()
            log.warning("pure proxy: facts go to the log only", extra={"why": why})
            return
        self._kube = kube
        pods = probes.pods = PodStore(kube, self._identity.node_name)
        # The claims of other pods are not their concern: those go on being prepared.
        own = pods.only_its
        pods.on_deleting.append(lambda pod: self.proxy.pod_deleting(pod.namespace, own(pod)))
        pods.on_gone.append(lambda pod: self.proxy.pod_gone(pod.namespace, own(pod)))
        self.reporter = probes.reporter = Reporter(
            self.ctx.settings, self._identity, kube, pods, self.proxy, hooks=self._report_hooks()
        )
        self._bypass = probes.bypass = BypassWatch(
            kube, pods, self.proxy, passed=self.proxy.passed, renew=self._bypassed
        )
        early, self.ctx.sink = self.ctx.sink, self.nudger.beside(self.reporter)
        if isinstance(early, Backlog):
            early.replay(self.ctx.sink)
        self.nudger.attach(kube, pods)
        probes.reporting = "on"
        self._tasks.start("reporter", self.reporter.run())
        self._tasks.start("pod watch", pods.run())

    def _fatal(self, error: UserError) -> None:
        self._failure = error
        self._stop.set()

    _failure: UserError | None = None

    def _signalled(self, number: int) -> None:
        log.info("stopping", extra={"signal": signal.Signals(number).name})
        for each in _ENDS:
            if asyncio.get_running_loop().remove_signal_handler(each):
                signal.signal(each, signal.SIG_DFL)  # a second one ends the process at once
        self._stop.set()

    async def _drain(self) -> None:
        if self._failure is not None:
            raise self._failure
        self.proxy.stop_retrying()
        await self.registry.drain()
        log.info("drained")

    async def _close(self, web: Web | None) -> None:
        if web is not None:
            await web.close()
        await self._tasks.close()
        if self._bypass is not None:
            await self._bypass.close()
        await self.nudger.close()
        await self.ctx.tasks.close()
        await self.ctx.tracing.close(_FLUSH)
        if self._kube is not None:
            await self._kube.close()

    def _links(self) -> Iterable[Link]:
        return self.registry.links.values()

    # What the parts tell each other

    def _triggered(self, driver: str, reason: str) -> None:
        self.proxy.trigger(driver)
        if self.reporter is not None:
            self.reporter.cancel(driver)

    def _bypassed(self, driver: str, reason: str) -> None:
        self.ctx.metrics.bypass(driver)
        self.registry.renew(driver, reason)

    def _reloaded(self, config: AgentConfig, rules: RuleSet) -> None:
        in_force(self.ctx, config, rules)
        if self.reporter is not None:
            self.reporter.reconfigure(config)
        for driver in list(self.registry.links):
            self._triggered(driver, "config")

    async def _tell(self, said: str, accepted: bool) -> None:
        self.ctx.metrics.config_reload("accepted" if accepted else "refused", time.time())
        if self._kube is not None:
            await tell(self._kube, self._identity, said, accepted)

    def _report_hooks(self) -> ReportHooks:
        metrics = self.ctx.metrics
        return ReportHooks(metrics.report, metrics.escalation, metrics.outcome)

    def _driver(self, driver: str, up: bool) -> None:
        self.ctx.metrics.driver_up(driver, up)
        self.nudger.driver_up(driver, up)

    def _crashed(self, name: str, error: BaseException) -> None:
        if not isinstance(error, UserError):
            self.probes.crash(name, error)
