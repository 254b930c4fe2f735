"""Prometheus metrics. The only import of prometheus_client.

Label keys are those of kubelet's `dra_grpc_operations_duration_seconds`, so that one query joins
both sides. Label values are closed sets: never a pod, namespace, claim, device or error text.
A driver's series exist from the moment it is known and go when it goes.
"""

from __future__ import annotations

import platform

import prometheus_client as prom
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import agent
from agent.core.model import Verdict
from agent.observe import methods

CONTENT_TYPE = CONTENT_TYPE_LATEST

_PREFIX = "dra_agent"
_DRIVER = "driver_name"
_CALL = (_DRIVER, "method_name", "grpc_status_code")
# A healthy call takes a millisecond, a held one up to kubelet's 45 s deadline.
_CALL_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 40, 45)
_KUBE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_Buckets = tuple[float, ...]
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 5)


def _registry() -> prom.CollectorRegistry:
    """A registry with what every program tells about itself."""
    registry = prom.CollectorRegistry(auto_describe=True)
    prom.ProcessCollector(registry=registry)
    prom.PlatformCollector(registry=registry)
    prom.GCCollector(registry=registry)
    build = Gauge(f"{_PREFIX}_build_info", "Constant 1.", ("version", "python"), registry=registry)
    build.labels(agent.__version__, platform.python_version()).set(1)
    return registry


KEPT_GONE = 16
"""Drivers that left whose series stay: last counts are scraped, one that is back goes on."""


class Metrics:
    """All metrics of one agent, in a registry of its own. No method raises or blocks."""

    def __init__(self) -> None:
        self.registry = registry = _registry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: _Buckets, *labels: str) -> Histogram:
            name = f"{_PREFIX}_{name}"
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        calls = "Calls kubelet made to the agent, retries included."
        self._calls = histogram("grpc_operations_duration_seconds", calls, _CALL_BUCKETS, *_CALL)
        self._inflight = gauge(
            "requests_inflight", "Calls of kubelet not answered yet.", _DRIVER, "method_name"
        )
        self._attempts = counter("upstream_attempts_total", "Calls made to the driver.", *_CALL)
        self._waits = counter("retry_wait_seconds_total", "Time between attempts.", _DRIVER)
        self._verdicts = counter(
            "claim_verdicts_total",
            "Failures judged, per claim and attempt.",
            *(_DRIVER, "verdict", "culprit", "rule"),
        )
        self._outcomes = counter(
            "outcomes_total",
            "Decisions about pods; acted false: mode observe, enforce would have done it.",
            *(_DRIVER, "action", "acted", "culprit"),
        )
        self._escalations = counter("escalations_total", "No longer normal.", _DRIVER, "rule")
        self._reloads = counter("config_reloads_total", "Config files that changed.", "result")
        self._reloaded = gauge("config_last_reload_success_timestamp_seconds", "Unix time.")
        self._nudges = counter(
            "nudges_total", "Waiting pods kubelet was told to look at.", _DRIVER, "cause", "result"
        )
        self._up = gauge("driver_up", "1: an instance of the driver is connected.", _DRIVER)
        self._registered = gauge("registered", "1: kubelet registered the agent.", _DRIVER)
        self._renewals = counter(
            "registration_renewals_total", "New generations, by what made them.", _DRIVER, "reason"
        )
        self._bypasses = counter(
            "bypassed_prepares_total", "Pods started with a prepare not seen.", _DRIVER
        )
        self._early = counter("unprepares_early_total", "Sent during their prepare.", _DRIVER)
        self._held = gauge("held_verdicts", "Permanent verdicts that answer repeats.", _DRIVER)
        self._reports = counter(
            "reports_total", "Writes to the API server, by kind.", "kind", "result"
        )
        self._queue = gauge("report_queue_length", "Facts waiting to be written.")
        self._dropped = counter("reports_dropped_total", "Facts dropped from a full queue.")
        requests, name = ("verb", "resource", "code"), "kube_request_duration_seconds"
        self._kube = histogram(name, "Requests to the API.", _KUBE_BUCKETS, *requests)
        self._lag = histogram("event_loop_lag_seconds", "How late a timer came.", _LAG_BUCKETS)
        rest: list[Counter | Gauge] = [self._waits, self._up, self._registered, self._bypasses]
        self._plain = (*rest, self._held, self._early)  # one series for each driver
        self._known: set[str] = set()
        self._left: dict[str, None] = {}  # the latest last
        self._gone: set[str] = set()

    def driver_known(self, driver: str) -> None:
        """Make a driver's series, all zero, before its first call."""
        self._gone.discard(driver)
        if driver in self._known:
            return
        self._known.add(driver)
        for method in (methods.PREPARES[0], methods.UNPREPARES[0]):
            self._calls.labels(driver, method, "OK")
            self._attempts.labels(driver, method, "OK")
            self._inflight.labels(driver, method)
        for metric in self._plain:
            metric.labels(driver)

    def driver_gone(self, driver: str) -> None:
        """A driver left. Series of the latest KEPT_GONE stay, the others are removed."""
        self._left.pop(driver, None)
        self._left[driver] = None
        if len(self._left) > KEPT_GONE:
            self._remove(next(iter(self._left)))

    def _remove(self, driver: str) -> None:
        """Remove a driver's series; what still ends for it is not counted any more."""
        del self._left[driver]
        self._known.discard(driver)
        self._gone.add(driver)
        for metric in (
            *(*self._plain, self._calls, self._inflight, self._attempts, self._verdicts),
            *(self._renewals, self._outcomes, self._escalations, self._nudges),
        ):
            metric.remove_by_labels({_DRIVER: driver})

    def _counts(self, driver: str) -> bool:
        if driver not in self._gone:
            self.driver_known(driver)
        return driver in self._known

    def call_started(self, driver: str, method: str) -> None:
        """Kubelet called; `method` is `/pkg.Service/Method`. Ends with `call_ended`."""
        if self._counts(driver):
            self._inflight.labels(driver, methods.method_label(method)).inc()

    def call_ended(self, driver: str, method: str, code: int, seconds: float) -> None:
        """Kubelet was answered with a gRPC status number."""
        if self._counts(driver):
            label = methods.method_label(method)
            self._inflight.labels(driver, label).dec()
            self._calls.labels(driver, label, methods.go_code(code)).observe(seconds)

    def attempt(self, driver: str, method: str, code: int) -> None:
        """One call to the driver ended; no answer at all counts as UNAVAILABLE (14)."""
        if self._counts(driver):
            label = methods.method_label(method)
            self._attempts.labels(driver, label, methods.go_code(code)).inc()

    def retry_wait(self, driver: str, seconds: float) -> None:
        """A wait between two attempts is over."""
        if self._counts(driver):
            self._waits.labels(driver).inc(max(0.0, seconds))

    def verdict(self, driver: str, verdict: Verdict) -> None:
        """A claim's failure was judged."""
        if self._counts(driver):
            self._verdicts.labels(
                driver, verdict.kind.value, verdict.culprit.value, verdict.rule
            ).inc()

    def outcome(self, driver: str, action: str, acted: bool, culprit: str) -> None:
        """It was decided what to do about a pod: `Report` or `FailPod`."""
        if self._counts(driver):
            self._outcomes.labels(driver, action, str(acted).lower(), culprit).inc()

    def escalation(self, driver: str, rule: str) -> None:
        """A claim's unknown failure went on for too long."""
        if self._counts(driver):
            self._escalations.labels(driver, rule).inc()

    def config_reload(self, result: str, wall: float) -> None:
        """Config or rule files changed: `accepted` or `refused`; `wall` is unix time."""
        self._reloads.labels(result).inc()
        if result == "accepted":
            self._reloaded.set(wall)

    def nudge(self, driver: str, cause: str, result: str) -> None:
        """A waiting pod's annotation was changed, or was to be."""
        if self._counts(driver):
            self._nudges.labels(driver, cause, result).inc()

    def driver_up(self, driver: str, up: bool) -> None:
        """Whether an instance of the driver is connected."""
        self.driver_known(driver)
        if up:
            self._left.pop(driver, None)
        self._up.labels(driver).set(up)

    def registered(self, driver: str, registered: bool) -> None:
        """Whether kubelet holds a registration of ours for the driver."""
        self.driver_known(driver)
        self._registered.labels(driver).set(registered)

    def renewal(self, driver: str, reason: str) -> None:
        """A new generation was made; `reason` is one word of a closed set."""
        if self._counts(driver):
            self._renewals.labels(driver, reason).inc()

    def bypass(self, driver: str) -> None:
        """A pod started and its prepare did not pass us."""
        if self._counts(driver):
            self._bypasses.labels(driver).inc()

    def unprepare_early(self, driver: str) -> None:
        """An unprepare went out while the prepare of its claim was unanswered."""
        if self._counts(driver):
            self._early.labels(driver).inc()

    def held(self, driver: str, n: int) -> None:
        """How many verdicts are held for the driver now."""
        if self._counts(driver):
            self._held.labels(driver).set(n)

    def report(self, kind: str, result: str) -> None:
        """A write to the API server ended; kind `condition`, `event`, `fail`, …."""
        self._reports.labels(kind, result).inc()
        self._dropped.inc(result == "dropped")

    def report_queue(self, n: int) -> None:
        """Facts waiting to be written."""
        self._queue.set(n)

    def kube_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One request to the API server; code 0: no answer."""
        self._kube.labels(verb, resource, str(code)).observe(seconds)

    def loop_lag(self, seconds: float) -> None:
        """A timer came this late."""
        self._lag.observe(max(0.0, seconds))

    def render(self) -> bytes:
        """The exposition in text format, to be sent as CONTENT_TYPE."""
        return generate_latest(self.registry)
