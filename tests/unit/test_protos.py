"""agent/pb is what protos/ gives, and both supported protobuf majors can load it."""

from __future__ import annotations

import re
from pathlib import Path

from agent import names
from agent.pb import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
)

ROOT = Path(__file__).resolve().parents[2]
VERSION_LINE = re.compile(r"# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)")


def test_generated_code_is_of_the_oldest_supported_runtime() -> None:
    # protobuf loads generated code of its own major and of the one before, never newer code.
    for path in (ROOT / "agent/pb").glob("*_pb2.py"):
        match = VERSION_LINE.search(path.read_text())
        assert match is not None
        assert tuple(map(int, match.groups())) <= (6, 31, 1), f"{path.name}: use grpcio-tools 1.76"


def test_services_have_the_paths_that_kubelet_calls() -> None:
    for module, service in (
        (dra_v1_pb2, names.SERVICE_V1),
        (dra_v1beta1_pb2, names.SERVICE_V1BETA1),
    ):
        descriptor = module.DESCRIPTOR.services_by_name["DRAPlugin"]
        assert descriptor.full_name == service
        assert {method.name for method in descriptor.methods} == {names.PREPARE, names.UNPREPARE}
    methods = tuple(
        "/"
        + module.DESCRIPTOR.services_by_name["DRAResourceHealth"].full_name
        + "/NodeWatchResources"
        for module in (dra_health_v1_pb2, dra_health_v1alpha1_pb2)
    )
    assert methods == names.HEALTH_METHODS
    registration = pluginregistration_v1_pb2.DESCRIPTOR.services_by_name["Registration"]
    assert {f"/{registration.full_name}/{method.name}" for method in registration.methods} == {
        names.REGISTRATION_GET_INFO,
        names.REGISTRATION_NOTIFY,
    }


def test_permanent_error_is_field_three() -> None:
    for module in (dra_v1_pb2, dra_v1beta1_pb2):
        fields = module.NodePrepareResourceResponse.DESCRIPTOR.fields_by_name
        assert fields["permanent_error"].number == 3
