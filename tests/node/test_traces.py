"""One call, told four times: the spans say what the status, the annotation and the log say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from .harness import objects
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.otlp import Collector
from .harness.reports import (
    GPU,
    PARAMETERS,
    PREPARED,
    TRANSIENT,
    claim_names,
    conditions,
    failed,
    log_lines,
    record,
    recovered,
    registered,
    template,
)
from .harness.waiting import wait_for

METHOD = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
# The SDK sends a batch every 5 s.
ARRIVAL = 15


def call_spans(collector: Collector, uid: str, method: str, calls: int = 1) -> list[dict[str, Any]]:
    """The SERVER spans of a claim's calls, once there are as many as expected."""

    def arrived() -> list[dict[str, Any]]:
        found = collector.spans(method, **{"dra.claim.uid": uid})
        return [span for span in found if span["kind"] == "SERVER"]

    wait_for(lambda: len(arrived()) >= calls, ARRIVAL, f"{calls} spans of {method}")
    return arrived()


def attempts(collector: Collector, call: dict[str, Any]) -> list[dict[str, Any]]:
    """The CLIENT spans of one call, in order."""
    found = [span for span in collector.spans() if span["parent"] == call["id"]]
    assert all(span["kind"] == "CLIENT" and span["trace"] == call["trace"] for span in found)
    assert all(call["start"] <= s["start"] <= s["end"] <= call["end"] for s in found)
    return found


def check_call(node: Node, dra: Agent, call: dict[str, Any], uid: str, claim: str) -> None:
    """What every call's span carries."""
    assert call["trace"] == UUID(uid).hex
    assert call["parent"] == ""
    assert call["resource"]["service.name"] == "dra-node-agent"
    assert call["resource"]["k8s.node.name"] == node.name
    about = {
        "rpc.system.name": "grpc",
        "dra.driver.name": GPU,
        "dra.claim.name": claim,
        "dra.claim.uid": uid,
        "dra.claim.count": 1,
    }
    assert about.items() <= call["attributes"].items()


def test_a_transient_failure_is_one_trace(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    collector: Collector,
) -> None:
    gpu = driver(GPU)
    dra = agent(tracing={"endpoint": collector.endpoint}, log={"format": "json"})
    registered(dra, GPU)
    gpu.fail(TRANSIENT, times=3)
    template(node, namespace)
    node.api.create(objects.pod(namespace, "late", templates=("one",)))
    wait_for(lambda: node.api.phase(namespace, "late") == "Running", 40, "pod running")
    asked = gpu.prepares()
    assert [call.error for call in asked] == [TRANSIENT] * 3 + [""]
    (claim,) = claim_names(node.api.pod(namespace, "late"))
    uid = asked[0].uid

    (call,) = call_spans(collector, uid, METHOD)
    check_call(node, dra, call, uid, claim)
    assert (call["status"], call["attributes"]["dra.attempts"]) == ("UNSET", 4)
    assert call["attributes"]["rpc.status_code"] == "OK"
    (event,) = call["events"]
    assert event["name"] == "dra.claim"
    assert event["attributes"]["dra.claim.state"] == "prepared"

    tries = attempts(collector, call)
    assert [span["attributes"]["dra.attempt.number"] for span in tries] == [1, 2, 3, 4]
    assert [span["status"] for span in tries] == ["ERROR"] * 3 + ["UNSET"]
    assert [span["message"] for span in tries] == [TRANSIENT] * 3 + [""]
    for span, seen in zip(tries, asked, strict=True):
        # The driver's own clock: it saw this attempt within this span.
        assert span["start"] <= seen.began <= seen.t <= span["end"]
    for span in tries[:3]:
        about = {
            "dra.verdict": "transient",
            "dra.culprit": "api",
            "dra.rule": "api-etcd",
            "error.type": "claim_error",
            "server.address": str(gpu.socket),
        }
        assert about.items() <= span["attributes"].items()

    said = recovered(node, namespace, "late")[PREPARED]
    assert said["reason"] == "Prepared"
    assert "after 4 attempts" in said["message"]
    assert TRANSIENT in said["message"]
    assert call["trace"] in said["message"]
    (line,) = log_lines(dra, "prepared")
    assert (line["trace_id"], line["attempts"]) == (call["trace"], 4)
    assert line["driver"] == GPU


def test_a_permanent_failure_is_the_same_in_trace_and_annotation(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    collector: Collector,
) -> None:
    gpu = driver(GPU)
    tracing = {"endpoint": collector.endpoint}
    dra = agent(mode="enforce", tracing=tracing, log={"format": "json"})
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    template(node, namespace)
    node.api.create(objects.pod(namespace, "bad", templates=("one",)))
    pod = failed(node, namespace, "bad")
    (entry,) = record(pod)["devices"]
    (asked,) = gpu.prepares()

    call = call_spans(collector, asked.uid, METHOD)[0]
    check_call(node, dra, call, asked.uid, entry["claim"])
    assert call["trace"] == entry["traceID"]
    (event,) = call["events"]
    for about in (call["attributes"], event["attributes"]):
        assert about["dra.verdict"] == entry["verdict"]
        assert about["dra.culprit"] == entry["culprit"]
        assert about["dra.rule"] == entry["rule"]
        assert about["dra.attempts"] == entry["attempts"]
    assert event["attributes"]["dra.claim.state"] == entry["state"] == "failed"
    assert event["attributes"]["exception.message"] == entry["lastError"]
    assert (call["status"], call["message"]) == ("ERROR", entry["cause"])
    (attempt,) = attempts(collector, call)
    assert (attempt["status"], attempt["message"]) == ("ERROR", entry["firstError"])

    assert call["trace"] in conditions(pod)[PREPARED]["message"]
    (line,) = log_lines(dra, "prepare failed")
    assert line["trace_id"] == call["trace"]
    assert (line["rule"], line["error"]) == (entry["rule"], entry["cause"])

    # The end of the claim is in the same trace.
    (undone,) = call_spans(collector, asked.uid, UNPREPARE)
    assert undone["trace"] == call["trace"]
    assert undone["status"] == "UNSET"
