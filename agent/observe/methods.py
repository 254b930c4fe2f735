"""Closed label sets: gRPC methods and status codes, in the two spellings that others use.

A peer chooses method names and status numbers freely; neither may become a label or a span
name as it came, for each new value would be a new time series.
"""

from __future__ import annotations

from agent import names

OTHER = "_OTHER"
"""Stands for every value outside the closed set, as the OpenTelemetry RPC conventions ask."""

PREPARES = tuple(f"/{s}/{names.PREPARE}" for s in names.PLUGIN_SERVICES.values())
UNPREPARES = tuple(f"/{s}/{names.UNPREPARE}" for s in names.PLUGIN_SERVICES.values())
KNOWN = frozenset(
    (
        *PREPARES,
        *UNPREPARES,
        *names.HEALTH_METHODS,
        names.REGISTRATION_GET_INFO,
        names.REGISTRATION_NOTIFY,
    )
)

# By status number: grpc-go's codes.Code.String(), which kubelet puts into its own metrics, and
# the gRPC specification's name, which the OpenTelemetry conventions use.
_CODES = (
    ("OK", "OK"),
    ("Canceled", "CANCELLED"),
    ("Unknown", "UNKNOWN"),
    ("InvalidArgument", "INVALID_ARGUMENT"),
    ("DeadlineExceeded", "DEADLINE_EXCEEDED"),
    ("NotFound", "NOT_FOUND"),
    ("AlreadyExists", "ALREADY_EXISTS"),
    ("PermissionDenied", "PERMISSION_DENIED"),
    ("ResourceExhausted", "RESOURCE_EXHAUSTED"),
    ("FailedPrecondition", "FAILED_PRECONDITION"),
    ("Aborted", "ABORTED"),
    ("OutOfRange", "OUT_OF_RANGE"),
    ("Unimplemented", "UNIMPLEMENTED"),
    ("Internal", "INTERNAL"),
    ("Unavailable", "UNAVAILABLE"),
    ("DataLoss", "DATA_LOSS"),
    ("Unauthenticated", "UNAUTHENTICATED"),
)


def method_label(method: str) -> str:
    """`/pkg.Service/Method` when it is one of kubelet's, else `_OTHER`."""
    return method if method in KNOWN else OTHER


def go_code(code: int) -> str:
    """A gRPC status number as kubelet's metrics spell it (`DeadlineExceeded`), else `_OTHER`."""
    return _CODES[code][0] if 0 <= code < len(_CODES) else OTHER


def spec_code(code: int) -> str:
    """A gRPC status number as the specification spells it (`DEADLINE_EXCEEDED`), else `_OTHER`."""
    return _CODES[code][1] if 0 <= code < len(_CODES) else OTHER
