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
    "NodePrepareResources: ",
    "NodePrepareResources call failed: ",
    "could not complete NodePrepareResources: ",
    "could not complete prepare: ",
    "unable to prepare: ",
    "cannot prepare ResourceClaim: ",
    "could not set up devices: ",
    "node worker-3: ",
    "on node worker-3: ",
    "node gpu-node-12.prod.local: ",
    "host worker-3: ",
    "[host-a] ",
    "[claim {ns}/{claim}] ",
    "handler failed: ",
    "prepare hook: ",
    "while checking state: ",
    "after waiting: ",
    "retry 3 of 5: ",
    "attempt 3/3: ",
    "prepare (timeout 30s): ",
    "kubelet plugin: ",
    "DRA plugin gpu.acme.dev: ",
    "dra-plugin: ",
    "driver: ",
    "server: ",
    "grpc: ",
    "request req-0: ",
    "pod {claim}: ",
    "handling request req-0 of claim {ns}/{claim}: ",
    "failed to prepare devices: claim {ns}/{claim}, request gpu: ",
    "E0102 10:11:12.000001 1 driver.go:77] prepare error: ",
    "level=error msg=",
]
# Names that sound like what rules look for.
DEVICES = [
    "npu-7", "busy-0", "dev-timeout-1", "gpu-invalid-2", "retry0", "lock-3", "pf1vf2",
    "0000:af:00.1", "GPU-5f1b2c3d-1111-2222-3333-444455556666", "card0", "mem0", "permission-9",
    "gpu-unsupported-4", "dead-1", "host-gpu-1", "node-not-ready-7", "x1",
]  # fmt: skip
DRIVERS = ["busy.example.com", "invalid.vendor.io", "lock.acme.dev", "retry-later.acme.local"]
ROOTS = ["/opt/k8s/kubelet", "/mnt/busy/invalid", "/data/firmware", "/srv/retry/timeout"]
_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.-]{1,64}/){1,12}(?=[\w.-]{1,64})")
_KERNEL = ("/dev/", "/sys/", "/proc/")


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


def elsewhere(text: str, root: str) -> str:
    """Put every file that is not the kernel's into another directory."""
    return _PATH.sub(lambda m: m[0] if m[0].startswith(_KERNEL) else f"{root}/", text)


def wrapped(text: str, prefix: str, *, claim: str, namespace: str, uid: str) -> str:
    """Put the words of one more layer before a text."""
    return prefix.format(ns=namespace, claim=claim, uid=uid) + text
