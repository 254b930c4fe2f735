from __future__ import annotations

from agent.demo.controller import claim_names
from agent.demo.objects import NAMESPACE, Want, add_node, add_pod
from agent.demo.store import Store


def test_a_pods_claims_are_allocated_owned_and_reserved_for_it() -> None:
    store = Store()
    pod = add_pod(store, "p", "node-a", (Want("gpu", "d.example.com", ("gpu-0", "gpu-1")),))
    name = claim_names(pod)["gpu"]
    claim = store.get("resourceclaims", NAMESPACE, name)
    uid = pod["metadata"]["uid"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == uid
    assert [user["uid"] for user in claim["status"]["reservedFor"]] == [uid]
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [(r["pool"], r["device"]) for r in results] == [("node-a", "gpu-0"), ("node-a", "gpu-1")]
    assert [r["request"] for r in results] == [
        r["name"] for r in claim["spec"]["devices"]["requests"]
    ]


def test_the_node_says_which_kubelet_it_has() -> None:
    store = Store()
    add_node(store, "node-a")
    assert store.get("nodes", "", "node-a")["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"
