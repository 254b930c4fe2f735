"""A Kubernetes namespace per test, emptied when the test ends."""

from __future__ import annotations

from .cluster import Node
from .objects import namespace
from .waiting import wait_for

# What makes new pods goes first.
_OWNERS = (
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/apps/v1/namespaces/{}/daemonsets",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/batch/v1/namespaces/{}/jobs",
)


def make_namespace(node: Node, name: str) -> None:
    """Creates it and waits for its service account, without which no pod is admitted."""
    node.api.create(namespace(name))
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for(lambda: node.api.find(account), 20, f"service account of {name}")


def clean_namespace(node: Node, name: str) -> None:
    """Deletes everything in it and the taints of the test; waits until the kubelet let go.

    The namespace object itself goes in the background: its controller takes seconds.
    """
    for owners in _OWNERS:
        for owner in node.api.items(owners.format(name)):
            path = f"{owners.format(name)}/{owner['metadata']['name']}"
            node.api.delete(f"{path}?propagationPolicy=Background")
    pods = f"/api/v1/namespaces/{name}/pods"
    for rule in node.api.taint_rules():
        node.api.delete(f"/apis/resource.k8s.io/v1/devicetaintrules/{rule['metadata']['name']}")

    def empty() -> bool:
        # Again each time: an owner may have made a pod just before it went.
        for pod in node.api.items(pods):
            if "deletionTimestamp" not in pod["metadata"]:
                node.api.delete(f"{pods}/{pod['metadata']['name']}")
        return not node.api.items(pods)

    wait_for(empty, 60, f"end of the pods in {name}", every=0.2)
    node.api.delete(f"/api/v1/namespaces/{name}")
