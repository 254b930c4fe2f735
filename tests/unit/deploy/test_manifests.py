from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent import names
from agent.settings.model import AgentConfig

DEPLOY = Path(__file__).parents[3] / "deploy"
ACCOUNT = "system:serviceaccount:dra-agent:dra-agent"


def load(name: str) -> dict[str, Any]:
    """All documents of a file by kind."""
    documents = [d for d in yaml.safe_load_all((DEPLOY / name).read_text()) if d]
    assert len({d["kind"] for d in documents}) == len(documents)
    return {d["kind"]: d for d in documents}


@pytest.fixture(scope="module")
def pod() -> Any:
    return load("30-daemonset.yaml")["DaemonSet"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: Any) -> Any:
    (found,) = pod["containers"]
    return found


def test_rights_are_exactly_these() -> None:
    rules = load("10-rbac.yaml")["ClusterRole"]["rules"]
    found = {
        (g, r): set(rule["verbs"])
        for rule in rules
        for g in rule["apiGroups"]
        for r in rule["resources"]
    }
    assert found == {
        ("", "pods"): {"get", "list", "watch"},
        ("", "pods/status"): {"patch"},
        ("", "nodes"): {"get"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceslices"): {"list"},
        ("resource.k8s.io", "devicetaintrules"): {"list"},
        ("events.k8s.io", "events"): {"create", "patch"},
    }
    text = (DEPLOY / "10-rbac.yaml").read_text()
    said = re.findall(r"\n  # [^\n]+\n(?:  # [^\n]+\n)*  - apiGroups", text)
    assert len(said) == len(rules), "each rule says why"


def test_one_account_everywhere(pod: Any) -> None:
    rbac = load("10-rbac.yaml")
    (subject,) = rbac["ClusterRoleBinding"]["subjects"]
    assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == ACCOUNT
    assert rbac["ClusterRoleBinding"]["roleRef"]["name"] == rbac["ClusterRole"]["metadata"]["name"]
    assert rbac["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"] == "dra-agent"
    namespace = load("00-namespace.yaml")["Namespace"]["metadata"]["name"]
    daemonset = load("30-daemonset.yaml")
    spaces = {d["metadata"]["namespace"] for d in daemonset.values()}
    assert spaces == {namespace} == {rbac["ServiceAccount"]["metadata"]["namespace"]}


def test_policy_fences_the_agent() -> None:
    found = load("20-admission-policy.yaml")
    policy, binding = found["ValidatingAdmissionPolicy"], found["ValidatingAdmissionPolicyBinding"]
    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"], "validationActions": ["Deny"],
    }  # fmt: skip
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods/status"], ["UPDATE"])
    (condition,) = spec["matchConditions"]
    assert ACCOUNT in condition["expression"]
    text = yaml.dump(spec)
    assert "authentication.kubernetes.io/node-name" in text
    assert f"'{names.PHASE_REASON}'" in text.replace("''", "'")
    assert f"'{names.DOMAIN}/'" in text.replace("''", "'")
    variables = {v["name"] for v in spec["variables"]}
    for validation in spec["validations"]:
        expression = validation["expression"]
        assert validation["message"]
        assert expression.count("(") == expression.count(")")
        assert expression.count("[") == expression.count("]")
        used = {
            w.split(".")[0].split("[")[0].rstrip(")") for w in expression.split("variables.")[1:]
        }
        assert {u.split(" ")[0] for u in used} <= variables


def test_least_privilege(pod: Any, container: Any) -> None:
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["privileged"] is False
    assert security["runAsUser"] == 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["hostNetwork"] is False
    assert "hostPID" not in pod
    paths = {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    assert paths == {"/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins"}


def test_host_paths_are_mounted_where_they_are(pod: Any, container: Any) -> None:
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    for volume in pod["volumes"]:
        if "hostPath" in volume:
            assert mounts[volume["name"]] == volume["hostPath"]["path"]


def test_a_hung_agent_is_gone_in_about_ten_seconds(container: Any) -> None:
    probe = container["livenessProbe"]
    assert probe["httpGet"]["path"] == "/livez"
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (3, 3)
    assert probe["terminationGracePeriodSeconds"] == 1
    assert probe["timeoutSeconds"] < probe["periodSeconds"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", 9880)
    # all addresses: kubectl port-forward arrives from loopback
    assert "--http-listen=:9880" in container["args"]


def test_token_is_bound_to_the_pod(pod: Any) -> None:
    assert pod["automountServiceAccountToken"] is False
    (token,) = [v["projected"] for v in pod["volumes"] if "projected" in v]
    kinds = {kind for source in token["sources"] for kind in source}
    assert kinds == {"serviceAccountToken", "configMap", "downwardAPI"}


def test_identity_comes_from_the_downward_api(container: Any) -> None:
    found = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]}
    assert found == {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
    }


def test_resources_and_place(pod: Any, container: Any) -> None:
    assert container["resources"] == {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "160Mi"},
    }
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"


def test_config_is_valid_and_only_watches() -> None:
    text = load("30-daemonset.yaml")["ConfigMap"]["data"]["agent.yaml"]
    config = msgspec.convert(
        yaml.safe_load(text), AgentConfig, dec_hook=lambda kind, value: kind(value)
    )
    assert config.mode == "observe"


def test_selector_matches_the_pods() -> None:
    daemonset = load("30-daemonset.yaml")["DaemonSet"]["spec"]
    assert daemonset["selector"]["matchLabels"] == daemonset["template"]["metadata"]["labels"]
    assert "maxSurge" not in daemonset["updateStrategy"]["rollingUpdate"]
