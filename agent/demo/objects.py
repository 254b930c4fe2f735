"""Pods, claims and nodes as the demo's users, scheduler and controllers would have made them."""

from __future__ import annotations

from dataclasses import dataclass

from agent.demo.store import Object, Store

NAMESPACE = "demo"


@dataclass(frozen=True, slots=True)
class Want:
    """One claim of a pod: its name in the pod, and what the scheduler allocated for it."""

    name: str
    driver: str
    devices: tuple[str, ...]


def add_node(store: Store, name: str) -> None:
    """Create the Node object, as a kubelet 1.37.2 writes it."""
    info = {"kubeletVersion": "v1.37.2", "operatingSystem": "linux"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"nodeInfo": info, "conditions": [ready]}
    store.create("nodes", {"metadata": {"name": name}, "status": status})


def add_pod(store: Store, name: str, node: str, wants: tuple[Want, ...]) -> Object:
    """Create a bare pod that is bound to the node, with generated, allocated, reserved claims."""
    statuses = [{"name": want.name, "resourceClaimName": f"{name}-{want.name}"} for want in wants]
    refs = [{"name": want.name, "resourceClaimTemplateName": want.name} for want in wants]
    uses = [{"name": want.name} for want in wants]
    container = {"name": "main", "image": "demo.invalid/train:1", "resources": {"claims": uses}}
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod = store.create(
        "pods",
        {
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {}, "labels": {}},
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "containers": [container],
                "resourceClaims": refs,
            },
            "status": {
                "phase": "Pending",
                "conditions": [scheduled],
                "resourceClaimStatuses": statuses,
            },
        },
    )
    for want in wants:
        store.create("resourceclaims", _claim(pod, want, node), by="scheduler")
    return pod


def _claim(pod: Object, want: Want, node: str) -> Object:
    meta = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    results = [
        {"request": f"{want.name}-{i}", "driver": want.driver, "pool": node, "device": device}
        for i, device in enumerate(want.devices)
    ]
    requests = [
        {"name": result["request"], "exactly": {"deviceClassName": want.driver}}
        for result in results
    ]
    return {
        "metadata": {
            "name": f"{meta['name']}-{want.name}",
            "namespace": meta["namespace"],
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": requests}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}],
        },
    }
