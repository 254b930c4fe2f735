"""Makes the core's Pod and Claim from the API's dicts.

Parsing never raises on a missing or null field: the API leaves out what is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent import names
from agent.core.context import SliceDevice, TaintRule
from agent.core.identity import worth_keeping
from agent.core.model import ClaimRef, Device
from agent.core.pods import Claim, Condition, Owner, Pod

JsonObject = Mapping[str, Any]

CRITICAL_PRIORITY = 2_000_000_000
"""Lowest priority of the system's own classes (scheduling.SystemCriticalPriority)."""

_CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"
_SANDBOXED = "PodReadyToStartContainers"  # a condition of kubelet
_CONTAINER_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def has_claims(raw: JsonObject) -> bool:
    """Tell whether a pod of the API uses resource claims at all."""
    return bool(_of(raw, "spec").get("resourceClaims")) or bool(
        _of(raw, "status").get("extendedResourceClaimStatus")
    )


def parse_pod(raw: JsonObject) -> Pod:
    """Make a Pod from the API's dict."""
    meta, spec, status = _of(raw, "metadata"), _of(raw, "spec"), _of(raw, "status")
    annotations = _of(meta, "annotations")
    claims, complete = _claim_names(spec, status)
    return Pod(
        uid=_text(meta, "uid"),
        namespace=_text(meta, "namespace"),
        name=_text(meta, "name"),
        resource_version=_text(meta, "resourceVersion"),
        node=_text(spec, "nodeName"),
        owner=_controller(meta),
        critical=_text(spec, "priorityClassName") in _CRITICAL_CLASSES
        or int(spec.get("priority") or 0) >= CRITICAL_PRIORITY,
        static=_MIRROR in annotations or annotations.get(_SOURCE, "api") != "api",
        phase=_text(status, "phase") or "Pending",
        reason=_text(status, "reason"),
        started=_started(status),
        deleting=bool(meta.get("deletionTimestamp")),
        claims=claims,
        claims_complete=complete,
        conditions=tuple(
            Condition(
                _text(c, "type"),
                _text(c, "status"),
                _text(c, "reason"),
                _text(c, "message"),
                _text(c, "lastTransitionTime"),
            )
            for c in _list(status, "conditions")
            if _text(c, "type").startswith(f"{names.DOMAIN}/")
        ),
        annotations=tuple(
            (key, str(value))
            for key, value in annotations.items()
            if key.startswith(f"{names.DOMAIN}/")
        ),
        created=_text(meta, "creationTimestamp"),
        sandboxed=any(
            _text(c, "type") == _SANDBOXED and _text(c, "status") == "True"
            for c in _list(status, "conditions")
        ),
    )


def parse_claim(raw: JsonObject) -> Claim:
    """Make a Claim from the API's dict (resource.k8s.io/v1; v1beta1 differs only in the spec)."""
    meta, status = _of(raw, "metadata"), _of(raw, "status")
    allocation = _of(_of(status, "allocation"), "devices")
    ref = ClaimRef(_text(meta, "namespace"), _text(meta, "uid"), _text(meta, "name"))
    config = _list(allocation, "config")
    classes = _classes(_of(_of(raw, "spec"), "devices"))
    devices = tuple(
        Device(
            claim=ref,
            request=_text(result, "request"),
            driver=_text(result, "driver"),
            pool=_text(result, "pool"),
            device=_text(result, "device"),
            share_id=_text(result, "shareID"),
            admin_access=bool(result.get("adminAccess")),
            parameters_from=_config_source(
                config, _text(result, "driver"), _text(result, "request")
            ),
            device_class=classes.get(_text(result, "request"), ""),
        )
        for result in _list(allocation, "results")
    )
    return Claim(
        uid=ref.uid,
        namespace=ref.namespace,
        name=ref.name,
        resource_version=_text(meta, "resourceVersion"),
        owner=_controller(meta),
        reserved_for=tuple(
            (_text(entry, "resource"), _text(entry, "uid"))
            for entry in _list(status, "reservedFor")
        ),
        devices=devices,
        admin_access=any(device.admin_access for device in devices),
    )


def _claim_names(spec: JsonObject, status: JsonObject) -> tuple[tuple[str, ...], bool]:
    made = {
        _text(s, "name"): s.get("resourceClaimName") for s in _list(status, "resourceClaimStatuses")
    }
    found: list[str] = []
    complete = True
    for entry in _list(spec, "resourceClaims"):
        name = entry.get("resourceClaimName") or made.get(_text(entry, "name"))
        if name:
            found.append(str(name))
        elif _text(entry, "name") not in made:
            # A status entry without a claim name means that no claim is needed.
            complete = False
    extended = _text(_of(status, "extendedResourceClaimStatus"), "resourceClaimName")
    if extended:
        found.append(extended)
    return tuple(dict.fromkeys(found)), complete


def _started(status: JsonObject) -> bool:
    """A container that never ran is still given a `terminated` state when its pod is failed
    (exit code 137, ContainerStatusUnknown), but no container id.
    """
    for key in _CONTAINER_LISTS:
        for container in _list(status, key):
            for states in (_of(container, "state"), _of(container, "lastState")):
                ended = _of(states, "terminated")
                if states.get("running") is not None or ended.get("containerID"):
                    return True
            if int(container.get("restartCount") or 0) > 0:
                return True
    return False


def _controller(meta: JsonObject) -> Owner | None:
    for owner in _list(meta, "ownerReferences"):
        if owner.get("controller"):
            return Owner(_text(owner, "kind"), _text(owner, "uid"), _text(owner, "name"))
    return None


def parse_slice(raw: JsonObject) -> tuple[SliceDevice, ...]:
    """Make the devices of a ResourceSlice (resource.k8s.io/v1)."""
    spec = _of(raw, "spec")
    driver, pool = _text(spec, "driver"), _text(_of(spec, "pool"), "name")
    return tuple(
        SliceDevice(
            driver,
            pool,
            _text(device, "name"),
            attributes={
                name: value
                for name, each in _of(device, "attributes").items()
                if (value := _attribute(each)) and worth_keeping(str(name), value)
            },
            taints=tuple(_taint(taint) for taint in _list(device, "taints")),
        )
        for device in _list(spec, "devices")
    )


def parse_taint_rule(raw: JsonObject) -> TaintRule | None:
    """Make what a DeviceTaintRule (resource.k8s.io/v1) does; None without a selector: nothing."""
    spec = _of(raw, "spec")
    selector = spec.get("deviceSelector")
    if not isinstance(selector, Mapping):
        return None
    place = _text(selector, "driver"), _text(selector, "pool"), _text(selector, "device")
    return TaintRule(place, _taint(_of(spec, "taint")))


def _attribute(value: object) -> str:
    """Return an attribute's value, which the API wraps in its type."""
    if not isinstance(value, Mapping):
        return ""
    found = value.get("string", value.get("int"))
    return str(found)[:256] if isinstance(found, str | int) and not isinstance(found, bool) else ""


def _taint(raw: JsonObject) -> str:
    value = _text(raw, "value")
    return f"{_text(raw, 'key')}{'=' + value if value else ''}:{_text(raw, 'effect')}"


def _classes(devices: JsonObject) -> Mapping[str, str]:
    """Find the DeviceClass of each request, and of each subrequest as `request/subrequest`."""
    found = {}
    for request in _list(devices, "requests"):
        name = _text(request, "name")
        found[name] = _text(_of(request, "exactly"), "deviceClassName")
        for each in _list(request, "firstAvailable"):
            found[f"{name}/{_text(each, 'name')}"] = _text(each, "deviceClassName")
    return found


def _config_source(config: Iterable[JsonObject], driver: str, request: str) -> str:
    """Say who wrote the opaque parameters of a device: `claim`, `class`, or both."""
    sources = []
    for entry in config:
        requests = entry.get("requests") or []
        parent = request.partition("/")[0]  # a subrequest's config may name the request
        if _text(_of(entry, "opaque"), "driver") != driver:
            continue
        if requests and request not in requests and parent not in requests:
            continue
        source = "class" if entry.get("source") == "FromClass" else "claim"
        if source not in sources:
            sources.append(source)
    return ",".join(sorted(sources))


def _of(raw: JsonObject, key: str) -> JsonObject:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(raw: JsonObject, key: str) -> list[JsonObject]:
    value = raw.get(key)
    return (
        [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    )


def _text(raw: JsonObject, key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""
