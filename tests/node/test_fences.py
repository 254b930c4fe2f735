"""What the agent's own token may not do, whatever the agent's code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import build
from .harness import objects
from .harness.agent import ACCOUNT, Agent
from .harness.agent import NAMESPACE as AGENT_NAMESPACE
from .harness.api import Api, ApiError, Object
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.reports import FAILURES, GPU, PARAMETERS, PREPARED, registered, template, told
from .harness.waiting import wait_for

DENIED, FORBIDDEN = 422, 403
STATUS = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 1}
CLAIM = {"name": "t0", "resourceClaimName": "someone-elses"}
ADDRESS = "10.9.9.9"
# What neither the agent nor (as qosClass and nominatedNodeName) the API server itself keeps safe.
REST: tuple[Object, ...] = (
    {"containerStatuses": [STATUS]},
    {"initContainerStatuses": [STATUS]},
    {"ephemeralContainerStatuses": [STATUS]},
    {"resourceClaimStatuses": [CLAIM]},
    {"hostIP": ADDRESS, "hostIPs": [{"$patch": "replace"}, {"ip": ADDRESS}]},
    {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]},
    {"startTime": "2001-01-01T00:00:00Z"},
    {"startTime": None},
    {"resize": "InProgress"},
    {"observedGeneration": 7},
)
# Kubernetes 1.34 does not know these, or drops them before it asks the policy.
MAPPED = {"containerName": "main", "resourceName": "cpu", "requestName": "r"}
REST_NEW: tuple[Object, ...] = (
    {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [MAPPED]}},
    {"allocatedResources": {"cpu": "1"}},
    {"resources": {"requests": {"cpu": "1"}}},
)


def condition(kind: str) -> Object:
    said = {"type": kind, "status": "False", "reason": "Test", "message": "a test wrote this"}
    return {"status": {"conditions": [said]}}


def refusal(api: Api, method: str, path: str, body: Any = None, kind: str = "") -> str:
    """Why the API server refused, with the code; fails when it did not."""
    try:
        api.request(method, path, body, kind)
    except ApiError as error:
        return str(error)
    raise AssertionError(f"{method} {path} went through: {body}")


def test_the_agent_can_write_only_its_own_words_on_pods_of_its_node(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    template(node, namespace)
    pod = objects.pod(namespace, "own", templates=("one",))
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1m"}  # for MAPPED
    node.api.create(pod)
    node.api.create(objects.pod(namespace, "plain"))
    elsewhere = {"nodeName": "another-node", "templates": ("one",)}
    node.api.create(objects.pod(namespace, "foreign", **elsewhere))
    told(node, namespace, "own")
    wait_for(lambda: node.api.phase(namespace, "plain") == "Running", 30, "plain pod running")

    api = Api(node.server, node.pki.ca, token=dra.token)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    own, mine = f"{pods}/own/status", condition("dra-agent.io/Test")
    cases: list[tuple[str, Object, str]] = [
        (f"{pods}/foreign/status", mine, "only to pods of the node it runs on"),
        (f"{pods}/plain/status", mine, "only to pods that use resource claims"),
        (own, condition("Ready"), "only conditions that begin with dra-agent.io/"),
        (own, condition("example.com/Other"), "only conditions that begin with dra-agent.io/"),
        (own, {"metadata": {"labels": {"a": "b"}}}, "labels, finalizers and owners"),
        (own, {"metadata": {"finalizers": ["example.com/x"]}}, "labels, finalizers and owners"),
        (own, {"metadata": {"annotations": {"example.com/a": "b"}}}, "only annotations"),
        (own, {"status": {"phase": "Succeeded"}}, "only from Pending to Failed"),
        (own, {"status": {"phase": "Failed"}}, "only from Pending to Failed"),
        (own, {"status": {"phase": "Failed", "reason": "Evicted"}}, "only from Pending to Failed"),
        (own, {"status": {"reason": "DevicePrepareFailed"}}, "only from Pending to Failed"),
    ]
    rest = REST + (REST_NEW if node.kube is build.NEWEST else ())
    cases += [(own, {"status": part}, "the rest of a pod's status") for part in rest]
    before = node.api.pod(namespace, "own")
    for path, body, why in cases:
        answer = refusal(api, "PATCH", path, body, "strategic")
        assert answer.startswith(f"{DENIED} "), answer
        assert "dra-agent-pod-status" in answer
        assert why in answer
    after = node.api.pod(namespace, "own")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    # There is no kubelet that would let go of it.
    node.api.delete(f"{pods}/foreign", grace=0)

    # A fence with a gate: what the agent needs is let through.
    api.patch(own, {**condition(PREPARED), "metadata": {"annotations": {FAILURES: "{}"}}})


def test_the_agent_has_no_other_rights(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    driver(GPU)
    dra = agent()
    registered(dra, GPU)
    template(node, namespace)
    node.api.create(objects.pod(namespace, "own", templates=("one",)))
    wait_for(lambda: node.api.phase(namespace, "own") == "Running", 30, "pod running")
    (claim,) = node.api.claims(namespace)
    api = Api(node.server, node.pki.ca, token=dra.token)
    pod = f"/api/v1/namespaces/{namespace}/pods/own"
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    held = f"{claims}/{claim['metadata']['name']}"
    note: Object = {"metadata": {"annotations": {FAILURES: "{}"}}}
    for method, path, body, kind in (
        ("PATCH", pod, note, "strategic"),
        ("PUT", f"{pod}/status", node.api.pod(namespace, "own"), ""),
        ("DELETE", pod, None, ""),
        ("POST", f"{pod}/eviction", {"metadata": {"name": "own", "namespace": namespace}}, ""),
        ("POST", f"/api/v1/namespaces/{namespace}/pods", objects.pod(namespace, "new"), ""),
        ("PATCH", held, note, "merge"),
        ("DELETE", held, None, ""),
        ("PATCH", f"{held}/status", note, "merge"),
        ("PATCH", f"/api/v1/nodes/{node.name}", note, "strategic"),
        ("GET", f"/api/v1/namespaces/{AGENT_NAMESPACE}/secrets", None, ""),
        ("GET", claims, None, ""),
        ("POST", f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/{ACCOUNT}/token", {}, ""),
    ):
        answer = refusal(api, method, path, body, kind)
        assert answer.startswith(f"{FORBIDDEN} Forbidden"), (method, path, answer)
        assert "admission" not in answer
    assert node.api.phase(namespace, "own") == "Running"


def test_a_token_that_is_bound_to_no_pod_writes_nothing(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    template(node, namespace)
    node.api.create(objects.pod(namespace, "own", templates=("one",)))
    told(node, namespace, "own")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 600},
    }
    path = f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    unbound = str(node.api.post(path, request)["status"]["token"])
    own = f"/api/v1/namespaces/{namespace}/pods/own/status"
    body = condition("dra-agent.io/Test")
    stray = Api(node.server, node.pki.ca, token=unbound)
    assert "only to pods of the node it runs on" in refusal(stray, "PATCH", own, body, "strategic")
    Api(node.server, node.pki.ca, token=dra.token).patch(own, body)
