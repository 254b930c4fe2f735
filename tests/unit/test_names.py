"""These names are an API: dashboards, Job policies and admission rules hold them as text."""

from __future__ import annotations

import re

from agent import names


def strings() -> dict[str, str]:
    return {k: v for k, v in vars(names).items() if k.isupper() and isinstance(v, str)}


def test_fixed_names() -> None:
    assert names.CONDITION_PREPARED == "dra-agent.io/DevicesPrepared"
    assert names.CONDITION_DEVICE_FAULT == "dra-agent.io/DeviceFault"
    assert names.CONDITION_INVALID_PARAMETERS == "dra-agent.io/InvalidParameters"
    assert names.PHASE_REASON == "DevicePrepareFailed"
    assert names.ANNOTATION_FAILURES == "dra-agent.io/device-failures"
    assert names.ANNOTATION_NUDGE == "dra-agent.io/nudge"
    assert names.CONFIG_API_VERSION == "dra-agent.io/v1alpha1"
    assert names.SOCKET_PREFIX == "dra-agent~"
    assert names.ENV_PREFIX == "DRA_AGENT_"


def test_reasons_are_camel_case_as_kubernetes_wants() -> None:
    for key, value in strings().items():
        if key.startswith("REASON_") or key in ("PHASE_REASON", "EVENT_REASON"):
            assert re.fullmatch(r"[A-Z][A-Za-z]+", value), key
            assert len(value) <= 128, key


def test_qualified_names_are_valid() -> None:
    for key, value in strings().items():
        if key.startswith(("CONDITION_", "ANNOTATION_")) or key == "EVENT_CONTROLLER":
            prefix, name = value.split("/")
            assert prefix == names.DOMAIN, key
            assert re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,61}[A-Za-z0-9]", name), key


def test_attribute_keys_are_dotted_lower_case_and_unique() -> None:
    keys = [value for key, value in strings().items() if key.startswith("ATTR_")]
    assert len(keys) == len(set(keys))
    for value in keys:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", value)


def test_services_are_those_on_the_wire() -> None:
    assert names.PLUGIN_SERVICES == {
        "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
        "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    }
    assert names.REGISTRATION_GET_INFO == "/pluginregistration.Registration/GetInfo"
    assert all(method.startswith("/") for method in names.HEALTH_METHODS)
