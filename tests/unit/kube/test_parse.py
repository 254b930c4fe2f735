from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.context import SliceDevice, TaintRule
from agent.core.pods import Owner
from agent.kube.parse import has_claims, parse_claim, parse_pod, parse_slice, parse_taint_rule
from tests.support.kube_api import make_claim, make_pod, make_slice, start_container


def test_pod_of_a_template() -> None:
    pod = parse_pod(make_pod("p", "p-c0", owner="Job"))
    assert (pod.uid, pod.namespace, pod.name, pod.node) == ("uid-p", "ns", "p", "node-a")
    assert pod.owner == Owner("Job", "owner-of-p", "p-owner")
    assert pod.claims == ("p-c0",)
    assert pod.claims_complete
    assert (pod.phase, pod.started, pod.ended, pod.deleting) == ("Pending", False, False, False)


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
    assert first.parameters_from == "claim,class"
    assert (second.share_id, second.admin_access, second.parameters_from) == ("s", True, "")


def test_classes_of_requests() -> None:
    raw = make_claim("c", "p", "gpu-0", "gpu-1")
    raw["spec"]["devices"] = {
        "requests": [
            {"name": "req0", "exactly": {"deviceClassName": "shared"}},
            {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "large"}]},
        ]
    }
    raw["status"]["allocation"]["devices"]["results"][1]["request"] = "any/big"
    assert [d.device_class for d in parse_claim(raw).devices] == ["shared", "large"]


def test_slice_keeps_identifiers_and_taints_only() -> None:
    raw = make_slice(
        "gpu.example.com",
        {
            "name": "gpu-0",
            "attributes": {
                "uuid": {"string": "GPU-1"},
                "index": {"int": 0},
                "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
                "productName": {"string": "big"},
                "minor": {"bool": True},
                "serial": None,
            },
            "capacity": {"memory": {"value": "80Gi"}},
            "taints": [
                {"key": "a.example/bad", "value": "x", "effect": "NoSchedule", "timeAdded": "t"},
                {"key": "b", "effect": "NoExecute"},
            ],
        },
        {"name": "gpu-1"},
    )
    first, second = parse_slice(raw)
    assert first == SliceDevice(
        "gpu.example.com",
        "node-a",
        "gpu-0",
        {"uuid": "GPU-1", "index": "0", "resource.kubernetes.io/pciBusID": "0000:01:00.0"},
        ("a.example/bad=x:NoSchedule", "b:NoExecute"),
    )
    assert second == SliceDevice("gpu.example.com", "node-a", "gpu-1")


def test_rules_of_taints() -> None:
    taint = {"key": "a.example/bad", "value": "x", "effect": "NoExecute"}
    selector = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    raw = {"spec": {"deviceSelector": selector, "taint": taint}}
    assert parse_taint_rule(raw) == TaintRule(
        ("gpu.example.com", "node-a", "gpu-0"), "a.example/bad=x:NoExecute"
    )
    every = parse_taint_rule({"spec": {"deviceSelector": {}, "taint": taint}})
    assert every is not None
    assert every.applies(("any", "one", "at-all"))
    assert parse_taint_rule({"spec": {"taint": taint}}) is None


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
    parse_slice(raw)
    parse_taint_rule(raw)
    has_claims(raw)


def test_when_a_pod_was_made_and_whether_it_has_a_sandbox() -> None:
    raw = make_pod("p", "c")
    assert (parse_pod(raw).created, parse_pod(raw).sandboxed) == ("", False)
    raw["metadata"]["creationTimestamp"] = "2026-11-30T14:20:00Z"
    ready = {"type": "PodReadyToStartContainers", "status": "False"}
    raw["status"]["conditions"].append(ready)
    assert not parse_pod(raw).sandboxed
    ready["status"] = "True"
    assert (parse_pod(raw).created, parse_pod(raw).sandboxed) == ("2026-11-30T14:20:00Z", True)
