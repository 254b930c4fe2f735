from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.pods import Owner
from agent.kube.parse import has_claims, parse_claim, parse_pod
from tests.support.kube_api import make_claim, make_pod, start_container


def test_pod_of_a_template() -> None:
    pod = parse_pod(make_pod("p", "p-c0", owner="Job"))
    assert (pod.uid, pod.namespace, pod.name, pod.node) == ("uid-p", "ns", "p", "node-a")
    assert pod.owner == Owner("Job", "owner-of-p", "p-owner")
    assert pod.claims == ("p-c0",)
    assert pod.claims_complete
    assert (pod.phase, pod.started, pod.ended, pod.deleting) == ("Pending", False, False, False)
    assert pod.restart_policy == "Never"


def test_claims_by_name_by_template_and_extended() -> None:
    raw = make_pod("p")
    raw["spec"]["resourceClaims"] = [
        {"name": "a", "resourceClaimName": "shared"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    raw["status"]["resourceClaimStatuses"] = [
        {"name": "b", "resourceClaimName": "p-b"},
        {"name": "none"},  # the API's way to say that no claim is needed
    ]
    raw["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "p-ext"}
    pod = parse_pod(raw)
    assert pod.claims == ("shared", "p-b", "p-ext")
    assert pod.claims_complete
    raw["spec"]["resourceClaims"].append({"name": "late", "resourceClaimTemplateName": "t"})
    assert not parse_pod(raw).claims_complete


def test_only_our_conditions_and_annotations_are_kept() -> None:
    raw = make_pod("p", "c")
    raw["status"]["conditions"].append(
        {"type": "dra-agent.io/DevicesPrepared", "status": "False", "lastTransitionTime": "t"}
    )
    raw["metadata"]["annotations"] = {"dra-agent.io/device-failures": "{}", "other": "x"}
    pod = parse_pod(raw)
    assert [c.type for c in pod.conditions] == ["dra-agent.io/DevicesPrepared"]
    assert pod.conditions[0].last_transition == "t"
    assert pod.annotation("dra-agent.io/device-failures") == "{}"
    assert pod.annotation("other") == ""


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, False),
        ({"state": {"running": {}}}, True),
        ({"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}, False),
        ({"state": {"terminated": {"exitCode": 0, "containerID": "x"}}}, True),
        ({"state": {"waiting": {}}, "lastState": {"terminated": {"containerID": "x"}}}, True),
        ({"state": {"waiting": {}}, "restartCount": 1}, True),
    ],
)
@pytest.mark.parametrize("where", ["containerStatuses", "initContainerStatuses"])
def test_started(status: dict[str, Any], started: bool, where: str) -> None:
    raw = make_pod("p", "c")
    raw["status"][where] = [status]
    assert parse_pod(raw).started is started


def test_static_critical_deleting_ended() -> None:
    raw = make_pod("p", "c")
    raw["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert parse_pod(raw).static
    raw["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    assert parse_pod(raw).static
    raw["metadata"]["annotations"] = {"kubernetes.io/config.source": "api"}
    assert not parse_pod(raw).static
    raw["spec"]["priority"] = 2_000_001_000
    assert parse_pod(raw).critical
    raw["spec"] |= {"priority": 0, "priorityClassName": "system-node-critical"}
    assert parse_pod(raw).critical
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert parse_pod(raw).deleting
    start_container(raw)
    assert parse_pod(raw).started
    raw["status"]["phase"] = "Succeeded"
    assert parse_pod(raw).ended


def test_has_claims() -> None:
    assert has_claims(make_pod("p", "c"))
    assert not has_claims(make_pod("p"))
    assert has_claims({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}})


def test_claim() -> None:
    raw = make_claim("c", "p", "gpu-0", "net.example.com/eth0")
    raw["status"]["allocation"]["devices"]["results"][1] |= {"shareID": "s", "adminAccess": True}
    raw["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClass", "opaque": {"driver": "gpu.example.com"}},
        {"source": "FromClaim", "requests": ["req0"], "opaque": {"driver": "gpu.example.com"}},
        {"source": "FromClaim", "requests": ["other"], "opaque": {"driver": "net.example.com"}},
    ]
    claim = parse_claim(raw)
    assert claim.ref.uid == "uid-c"
    assert claim.owner == Owner("Pod", "uid-p", "p")
    assert claim.reserved_for == (("pods", "uid-p"),)
    assert claim.drivers == {"gpu.example.com", "net.example.com"}
    assert claim.admin_access
    first, second = claim.devices
    assert (first.request, first.pool, first.device) == ("req0", "node-a", "gpu-0")
    assert first.attributes == {"config": "claim,class"}
    assert (second.share_id, second.admin_access, second.attributes) == ("s", True, {})


def test_a_request_without_allocation_has_no_devices() -> None:
    raw = make_claim("c", "p", "gpu-0")
    raw["status"] = {}
    claim = parse_claim(raw)
    assert (claim.devices, claim.reserved_for, claim.admin_access) == ((), (), False)


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_odd_documents_never_raise(raw: dict[str, Any]) -> None:
    parse_pod(raw)
    parse_claim(raw)
    has_claims(raw)
