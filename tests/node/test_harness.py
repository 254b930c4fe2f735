"""The harness itself: what the agent's tests rely on must be true of the stage they play on."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .harness import daemonset, objects, wire
from .harness.agent import HOST_POD, NAMESPACE, Agent
from .harness.api import Api
from .harness.cluster import SLOW, Node
from .harness.driver import Driver
from .harness.forward import Forwarder
from .harness.otlp import Collector
from .harness.waiting import wait_for

GPU = "gpu.example.com"


def create_pod(node: Node, namespace: str, name: str) -> None:
    node.api.create(objects.claim_template(namespace, "one", objects.claim_spec(GPU)))
    node.api.create(objects.pod(namespace, name, templates=("one",)))


def test_the_kubelet_can_be_killed_and_started_while_pods_run(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    gpu = driver(GPU)
    create_pod(node, namespace, "fine")
    wait_for(lambda: node.api.phase(namespace, "fine") == "Running", 30, "pod running")
    assert "dra_grpc_operations_duration_seconds" in node.kubelet_metrics()
    before = len(gpu.registrations())
    node.restart_kubelet(kill=True, **SLOW)
    wait_for(lambda: len(gpu.registrations()) > before, 30, "registration with the new kubelet")
    assert len(gpu.prepares()) == 1


def test_the_api_server_can_vanish_and_return(node: Node) -> None:
    node.kill_apiserver()
    with pytest.raises(OSError, match="refused"):
        node.api.get("/version")
    node.start_apiserver()
    assert node.api.get("/version")["gitVersion"] == node.kube.version


def test_the_forwarder_cuts_and_freezes(node: Node, forwarder: Forwarder) -> None:
    admin = (node.pki.folder / "admin.crt", node.pki.folder / "admin.key")
    api = Api(forwarder.server, node.pki.ca, client=admin, timeout=1)
    assert api.get("/version")
    forwarder.stop()
    with pytest.raises(OSError, match="refused"):
        api.get("/version")
    forwarder.start()
    assert api.get("/version")
    forwarder.freeze()
    with pytest.raises(TimeoutError):
        api.get("/version")
    forwarder.thaw()
    assert api.get("/version")


def test_a_permanent_error_is_field_3_of_the_claims_answer(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    gpu = driver(GPU)
    gpu.fail("wrong mode", permanent=True)
    create_pod(node, namespace, "bad")
    wait_for(gpu.prepares, 30, "a prepare by the kubelet")
    (claim,) = node.api.claims(namespace)
    answer = wire.call(gpu.socket, wire.PREPARE, wire.claims_request(claim))
    about = wire.field(2, "wrong mode") + wire.flag(3)
    uid = wire.field(1, claim["metadata"]["uid"])
    assert answer == wire.field(1, uid + wire.field(2, about))


def test_two_instances_of_a_driver_take_over_from_each_other(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    old = driver(GPU, instance="old")
    new = driver(GPU, instance="new")
    create_pod(node, namespace, "fine")
    wait_for(lambda: node.api.phase(namespace, "fine") == "Running", 30, "pod running")
    assert (len(old.prepares()), len(new.prepares())) == (0, 1)
    new.stop()
    node.api.delete(f"/api/v1/namespaces/{namespace}/pods/fine")
    wait_for(old.unprepares, 60, "unprepare by the instance that is left")


def test_the_agent_is_started_as_the_daemonset_starts_it(
    node: Node, agent: Callable[..., Agent]
) -> None:
    """The API server takes the manifest as it is; the process has its words, values and rights."""
    dra = agent()
    kept = daemonset.accepted(node.api)
    (container,) = kept["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == daemonset.container()["args"]
    command = Path(f"/proc/{dra.process.pid}/cmdline").read_text().split("\0")
    moved = {"--config", "--http-listen"}
    for word in container["args"]:
        flag = word.partition("=")[0]
        assert any(
            have.startswith(f"{flag}=") if flag in moved else have == word for have in command
        )
    host = node.api.pod(NAMESPACE, HOST_POD)
    given = {
        "NODE_NAME": node.name,
        "POD_NAME": HOST_POD,
        "POD_NAMESPACE": NAMESPACE,
        "POD_UID": host["metadata"]["uid"],
    }
    assert given.keys() == {each["name"] for each in container["env"]}
    assert given.items() <= dra.process.environ().items()
    dra.check_privileges()

    # Only asked about: else a second agent would be on this node.
    assert node.api.items(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets") == []
    pods = node.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert [each["metadata"]["name"] for each in pods] == [HOST_POD]


def test_the_collector_keeps_spans(collector: Collector) -> None:
    export = ExportTraceServiceRequest()
    span = export.resource_spans.add().scope_spans.add().spans.add(name="s", trace_id=b"\x01" * 16)
    span.attributes.add(key="claims").value.array_value.values.add(string_value="a")
    request = urllib.request.Request(
        f"{collector.endpoint}/v1/traces",
        export.SerializeToString(),
        {"Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200
    (kept,) = collector.spans("s", claims=("a",))
    assert kept["trace"] == "01" * 16
