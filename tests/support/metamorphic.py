"""The same failure in other words that must not matter: names, paths, wrapping, company."""

from __future__ import annotations

import re

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Names of the corpus that stand for claims, pods, namespaces, nodes and devices.
NAMES = {
    "claim": ["train-0-gpu-7x2kq", "train-0-channel-8gwxw", "worker-3-nic", "job-0-tpu"],
    "namespace": ["default/", "task-runtime/", "ml/"],
    "pod": ["virt-launcher-vmi-0"],
    "node": ["node-a"],
}
PREFIXES = [
    "error preparing devices for claim {ns}/{claim}:{uid}: ",
    "error preparing devices for claim {uid}: prepare failed: ",
    "prepare resource claims: ",
    "claim {uid} contain errors: ",
    "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed "
    "for ResourceClaim {claim}: ",
    "rpc error: code = Unknown desc = ",
    "prepare inner.example.com via gRPC: ",
    "device plugin: outer: inner: ",
]


def renamed(text: str, *, claim: str, namespace: str, node: str, uid: str) -> str:
    """Give claim, namespace, pod and node other names and the claims other UIDs."""
    for name in NAMES["claim"] + NAMES["pod"]:
        text = text.replace(name, claim)
    for name in NAMES["namespace"]:
        text = text.replace(name, f"{namespace}/")
    for name in NAMES["node"]:
        text = re.sub(rf"\b{name}\b", node, text)
    return UID.sub(lambda found: uid[: len(found[0])], text)


def moved(text: str, root: str) -> str:
    """Put kubelet's and the drivers' directories elsewhere."""
    return text.replace("/var/lib/kubelet", root).replace("/var/run/cdi", f"{root}/cdi")


def wrapped(text: str, prefix: str, *, claim: str, namespace: str, uid: str) -> str:
    """Put the words of one more layer before a text."""
    return prefix.format(ns=namespace, claim=claim, uid=uid) + text
