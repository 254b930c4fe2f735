from __future__ import annotations

import pytest

from agent import names
from agent.observe import methods


@pytest.mark.parametrize(
    ("code", "go", "spec"),
    [
        (0, "OK", "OK"),
        (1, "Canceled", "CANCELLED"),
        (4, "DeadlineExceeded", "DEADLINE_EXCEEDED"),
        (14, "Unavailable", "UNAVAILABLE"),
        (16, "Unauthenticated", "UNAUTHENTICATED"),
        (17, "_OTHER", "_OTHER"),
        (-1, "_OTHER", "_OTHER"),
        (2**31, "_OTHER", "_OTHER"),
    ],
)
def test_status_numbers_have_both_spellings(code: int, go: str, spec: str) -> None:
    assert methods.go_code(code) == go
    assert methods.spec_code(code) == spec


def test_both_spellings_name_the_same_codes() -> None:
    for code in range(17):
        go, spec = methods.go_code(code), methods.spec_code(code)
        assert go.lower().replace("canceled", "cancelled") == spec.replace("_", "").lower()


def test_only_kubelets_methods_are_labels() -> None:
    prepare = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert methods.method_label(prepare) == prepare
    assert methods.PREPARES[0] == prepare
    for method in (*names.HEALTH_METHODS, names.REGISTRATION_NOTIFY):
        assert methods.method_label(method) == method
    for method in ("/x.Y/Z", "", prepare + "x", prepare[1:]):
        assert methods.method_label(method) == "_OTHER"
