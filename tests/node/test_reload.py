"""The agent's ConfigMap changes: as the kubelet swaps it under a running agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .harness import objects
from .harness.agent import HOST_POD, NAMESPACE, Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.reports import GPU, UNKNOWN, registered, template
from .harness.waiting import wait_for

FILE = "config.yaml"
# Kubelet looks after a ConfigMap when it syncs the pod: every 5 s here, and its cache is a minute
# old at most.
SWAP = 90


def config_map(namespace: str, **config: Any) -> dict[str, Any]:
    header = {"apiVersion": "dra-agent.io/v1alpha1", "kind": "AgentConfig"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "agent-config", "namespace": namespace},
        "data": {FILE: json.dumps({**header, **config})},
    }


def events(node: Node, reason: str) -> list[str]:
    return [event["message"] for event in node.api.events(NAMESPACE, HOST_POD, reason)]


def test_a_change_of_the_config_map_is_taken_or_refused_and_told(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu = driver(GPU)
    template(node, namespace)
    node.api.apply(config_map(namespace, mode="observe"))
    volume = {"name": "config", "configMap": {"name": "agent-config"}}
    holder = objects.pod(namespace, "holder", volumes=[volume])
    # A volume that no container mounts is not made.
    holder["spec"]["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/config"}]
    node.api.create(holder)
    uid = node.api.pod(namespace, "holder")["metadata"]["uid"]
    volumes = node.kubelet_root / "pods" / uid / "volumes"
    file = volumes / "kubernetes.io~configmap" / "config" / FILE
    wait_for(file.exists, 30, "the volume with the config")
    dra = agent(start=False)
    dra.read_config(file)
    dra.start()
    registered(dra, GPU)

    node.api.apply(config_map(namespace, mode="obey", retry={"margin": "-1s"}))
    refused = wait_for(lambda: events(node, "ConfigRefused"), SWAP, "the event of a refusal")[0]
    assert "mode" in refused
    assert "retry.margin" in refused, "every problem at once"
    assert dra.metric("dra_agent_config_reloads_total", result="refused") == 1
    assert "config refused, the old one stays: " in dra.log()
    assert dra.state()["mode"] == "observe"
    assert dra.http("/readyz")[0] == 200

    retry = {"perDriver": {GPU: {"retry": {"ambiguousAttempts": 1}}}}
    node.api.apply(config_map(namespace, mode="enforce", drivers=retry))
    wait_for(lambda: events(node, "ConfigReloaded"), SWAP, "the event of a change")
    assert dra.metric("dra_agent_config_reloads_total", result="accepted") == 1
    assert dra.state()["mode"] == "enforce"
    gpu.fail(UNKNOWN)
    node.api.create(objects.pod(namespace, "p", templates=("one",)))
    failed = "FailedPrepareDynamicResources"
    wait_for(lambda: node.api.events(namespace, "p", failed), 30, "the failure told")
    assert len(gpu.prepares("p-")) == 1, "the new policy of the driver is in force"
