"""Builders of the manifests that tests create."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

IMAGE = "docker.io/local/busybox:1"
PAUSE_IMAGE = "docker.io/local/pause:1"
# Ends at once on SIGTERM, which a plain sleep as process 1 does not.
RUN_UNTIL_TERM = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait")


def device_class(driver: str) -> Object:
    """A class that selects all devices of one driver and bears the driver's name."""
    selector = {"cel": {"expression": f"device.driver == {driver!r}"}}
    return _object("resource.k8s.io/v1", "DeviceClass", driver, "", spec={"selectors": [selector]})


def claim_spec(
    driver: str, *, count: int = 1, config: Object | None = None, **request: Any
) -> Object:
    """One request for `count` devices; `config`: its parameters, `request`: part of `exactly`."""
    exactly = {"deviceClassName": driver, "count": count, **request}
    devices: Object = {"requests": [{"name": "device", "exactly": exactly}]}
    if config is not None:
        devices["config"] = [{"opaque": {"driver": driver, "parameters": config}}]
    return {"devices": devices}


def claim_template(namespace: str, name: str, spec: Object) -> Object:
    return _object(
        "resource.k8s.io/v1", "ResourceClaimTemplate", name, namespace, spec={"spec": spec}
    )


def claim(namespace: str, name: str, spec: Object) -> Object:
    return _object("resource.k8s.io/v1", "ResourceClaim", name, namespace, spec=spec)


def pod_spec(
    *,
    templates: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
    command: tuple[str, ...] = RUN_UNTIL_TERM,
    **extra: Any,
) -> Object:
    """One container that uses all claims: one per template, and the named standalone ones.

    The latter have their own names in the pod, too: a kubelet 1.34 shows the health of no others.
    """
    refs: list[Object] = []
    refs += [
        {"name": f"t{i}", "resourceClaimTemplateName": name} for i, name in enumerate(templates)
    ]
    refs += [{"name": name, "resourceClaimName": name} for name in claims]
    container: Object = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"claims": [{"name": ref["name"]} for ref in refs]},
    }
    return {
        "containers": [container],
        "resourceClaims": refs,
        # There is no cluster DNS, no registry, and nobody who waits for a slow end.
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        # The node may be used before the controllers have seen that it is ready.
        "tolerations": [{"operator": "Exists"}],
        **extra,
    }


def pod(namespace: str, name: str, **spec: Any) -> Object:
    """A bare pod; the arguments are those of pod_spec."""
    return _object(
        "v1", "Pod", name, namespace, spec={"restartPolicy": "Always", **pod_spec(**spec)}
    )


def deployment(namespace: str, name: str, replicas: int = 1, **spec: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    return _object(
        "apps/v1",
        "Deployment",
        name,
        namespace,
        spec={"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    )


def job(
    namespace: str,
    name: str,
    *,
    rules: list[Object] | None = None,
    backoff_limit: int = 6,
    **spec: Any,
) -> Object:
    """A Job; `rules` are those of its podFailurePolicy."""
    template = {"spec": {"restartPolicy": "Never", **pod_spec(**spec)}}
    body: Object = {"backoffLimit": backoff_limit, "template": template}
    if rules is not None:
        body["podFailurePolicy"] = {"rules": rules}
    return _object("batch/v1", "Job", name, namespace, spec=body)


def namespace(name: str) -> Object:
    return _object("v1", "Namespace", name, "")


def _object(version: str, kind: str, name: str, space: str, **body: Any) -> Object:
    metadata = {"name": name, **({"namespace": space} if space else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


_READ_CLAIMS = "tests-nodes-read-claims"
# A kubelet that gets a pod a moment before the API server's node authorizer has seen whose claims
# these are is refused ("no relationship found between node"), and asks again after a minute or so:
# a race of Kubernetes' own, which a busy machine loses often.
CLAIMS_FOR_NODES = (
    _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        _READ_CLAIMS,
        "",
        rules=[
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}
        ],
    ),
    _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        _READ_CLAIMS,
        "",
        roleRef={
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": _READ_CLAIMS,
        },
        subjects=[
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
        ],
    ),
)
