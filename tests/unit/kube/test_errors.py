from __future__ import annotations

import pytest

from agent.kube import errors


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (404, "gone", errors.NotFound),
        (409, "modified", errors.Conflict),
        (410, "too old", errors.Expired),
        (403, "forbidden", errors.Denied),
        (401, "expired token", errors.Unavailable),
        (429, "slow down", errors.Unavailable),
        (503, "", errors.Unavailable),
        (400, "bad", errors.Invalid),
        (422, "spec.x: required", errors.Invalid),
        (
            422,
            'Pod "x" is invalid: metadata.uid: Invalid value: "u": field is immutable',
            errors.NotFound,
        ),
        (
            422,
            "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not yours",
            errors.Denied,
        ),
    ],
)
def test_status_becomes_our_error(code: int, message: str, kind: type[errors.KubeError]) -> None:
    error = errors.from_status(code, message)
    assert type(error) is kind
    assert error.code == code
    assert str(code) in str(error)


def test_long_messages_are_cut() -> None:
    assert len(str(errors.from_status(500, "x" * 100_000))) <= 1024
