from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from agent.core.model import Culprit, Kind, Verdict
from agent.observe import methods
from agent.observe.metrics import KEPT_GONE, Metrics

PREPARE = methods.PREPARES[0]
DRIVER = "gpu.example.com"
VERDICT = Verdict(Kind.PERMANENT, Culprit.DEVICE, "xid-79", "replace it", device="gpu-0")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def gone(metrics: Metrics, driver: str) -> None:
    """It left, and then so many others that it is not kept any more."""
    for name in (driver, *(f"{number}.gone" for number in range(KEPT_GONE))):
        metrics.driver_gone(name)


def test_a_known_driver_has_its_series_at_zero() -> None:
    metrics = Metrics()
    assert f'driver_name="{DRIVER}"' not in metrics.render().decode()
    metrics.driver_known(DRIVER)
    labels = {"driver_name": DRIVER, "method_name": PREPARE, "grpc_status_code": "OK"}
    assert value(metrics, "dra_agent_grpc_operations_duration_seconds_count", **labels) == 0
    assert value(metrics, "dra_agent_upstream_attempts_total", **labels) == 0
    assert value(metrics, "dra_agent_driver_up", driver_name=DRIVER) == 0


def test_a_call_with_a_retry() -> None:
    metrics = Metrics()
    metrics.call_started(DRIVER, PREPARE)
    inflight = {"driver_name": DRIVER, "method_name": PREPARE}
    assert value(metrics, "dra_agent_requests_inflight", **inflight) == 1
    metrics.attempt(DRIVER, PREPARE, 14)
    metrics.retry_wait(DRIVER, 0.25)
    metrics.attempt(DRIVER, PREPARE, 0)
    metrics.verdict(DRIVER, VERDICT)
    metrics.call_ended(DRIVER, PREPARE, 0, 0.3)
    assert value(metrics, "dra_agent_requests_inflight", **inflight) == 0
    ok = {**inflight, "grpc_status_code": "OK"}
    away = {**inflight, "grpc_status_code": "Unavailable"}
    assert value(metrics, "dra_agent_upstream_attempts_total", **ok) == 1
    assert value(metrics, "dra_agent_upstream_attempts_total", **away) == 1
    assert value(metrics, "dra_agent_grpc_operations_duration_seconds_count", **ok) == 1
    assert value(metrics, "dra_agent_grpc_operations_duration_seconds_bucket", le="0.5", **ok) == 1
    assert value(metrics, "dra_agent_retry_wait_seconds_total", driver_name=DRIVER) == 0.25
    assert (
        value(
            metrics,
            "dra_agent_claim_verdicts_total",
            **{"driver_name": DRIVER, "verdict": "permanent"},
            **{"culprit": "device", "rule": "xid-79"},
        )
        == 1
    )


def test_peers_cannot_make_series() -> None:
    metrics = Metrics()
    for n in range(50):
        metrics.call_started(DRIVER, f"/made.Up/M{n}")
        metrics.call_ended(DRIVER, f"/made.Up/M{n}", 1000 + n, 0.1)
    text = metrics.render().decode()
    assert "made.Up" not in text
    other = {"driver_name": DRIVER, "method_name": "_OTHER", "grpc_status_code": "_OTHER"}
    assert value(metrics, "dra_agent_grpc_operations_duration_seconds_count", **other) == 50


def test_a_driver_that_went_leaves_nothing_and_can_come_back() -> None:
    metrics = Metrics()
    metrics.driver_up(DRIVER, True)
    metrics.registered(DRIVER, True)
    metrics.renewal(DRIVER, "driver_restart")
    metrics.verdict(DRIVER, VERDICT)
    metrics.driver_known("other.example.com")
    metrics.call_started(DRIVER, PREPARE)
    gone(metrics, DRIVER)
    metrics.call_ended(DRIVER, PREPARE, 0, 1.0)  # was in flight: must not bring the series back
    metrics.held(DRIVER, 1)
    text = metrics.render().decode()
    assert DRIVER not in text
    assert "other.example.com" in text
    metrics.driver_up(DRIVER, True)
    assert value(metrics, "dra_agent_driver_up", driver_name=DRIVER) == 1


def test_a_driver_that_is_back_goes_on_counting() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.driver_up(DRIVER, True)
        metrics.bypass(DRIVER)
        metrics.driver_up(DRIVER, False)
        metrics.driver_gone(DRIVER)
    assert value(metrics, "dra_agent_bypassed_prepares_total", driver_name=DRIVER) == 2
    metrics.driver_up(DRIVER, True)
    for number in range(KEPT_GONE + 1):
        metrics.driver_gone(f"{number}.example.com")
    assert value(metrics, "dra_agent_bypassed_prepares_total", driver_name=DRIVER) == 2


def test_the_rest_of_the_names() -> None:
    metrics = Metrics()
    metrics.registered(DRIVER, True)
    metrics.bypass(DRIVER)
    metrics.unprepare_early(DRIVER)
    metrics.held(DRIVER, 3)
    metrics.renewal(DRIVER, "bypass")
    metrics.report("condition", "ok")
    metrics.report_queue(7)
    metrics.report("fact", "dropped")
    metrics.kube_request("PATCH", "pods/status", 409, 0.02)
    one = {"driver_name": DRIVER}
    assert value(metrics, "dra_agent_registered", **one) == 1
    assert value(metrics, "dra_agent_bypassed_prepares_total", **one) == 1
    assert value(metrics, "dra_agent_unprepares_early_total", **one) == 1
    assert value(metrics, "dra_agent_held_verdicts", **one) == 3
    assert value(metrics, "dra_agent_registration_renewals_total", reason="bypass", **one) == 1
    assert value(metrics, "dra_agent_reports_total", kind="condition", result="ok") == 1
    assert value(metrics, "dra_agent_report_queue_length") == 7
    assert value(metrics, "dra_agent_reports_dropped_total") == 1
    request = {"verb": "PATCH", "resource": "pods/status", "code": "409"}
    assert value(metrics, "dra_agent_kube_request_duration_seconds_count", **request) == 1
    text = metrics.render().decode()
    assert re.search(r'dra_agent_build_info\{python="3[^"]+",version="[^"]+"\} 1\.0', text)
    assert "process_resident_memory_bytes" in text


def test_all_own_names_carry_the_prefix_and_help() -> None:
    metrics = Metrics()
    metrics.driver_known(DRIVER)
    foreign = ("process_", "python_")
    for family in text_string_to_metric_families(metrics.render().decode()):
        assert family.name.startswith(("dra_agent_", *foreign)), family.name
        assert family.documentation, family.name


def test_nudges_are_counted_by_cause_and_go_with_their_driver() -> None:
    metrics = Metrics()
    metrics.nudge(DRIVER, "driver-back", "ok")
    labels = f'cause="driver-back",driver_name="{DRIVER}",result="ok"'
    assert f"dra_agent_nudges_total{{{labels}}} 1.0" in metrics.render().decode()
    gone(metrics, DRIVER)
    assert "nudges_total{" not in metrics.render().decode()


def test_config_reloads() -> None:
    metrics = Metrics()
    metrics.config_reload("refused", 1.0)
    metrics.config_reload("accepted", 2.0)
    text = metrics.render().decode()
    assert 'dra_agent_config_reloads_total{result="accepted"} 1.0' in text
    assert "dra_agent_config_last_reload_success_timestamp_seconds 2.0" in text
