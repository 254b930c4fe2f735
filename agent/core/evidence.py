"""What a driver says outright about its own failure; culprit `unknown` leaves that open.

Strongest first: `permanent_error` of the response, the marker in the text, an ErrorInfo of our
domain; then what google.rpc's other details mean by their own definition.
"""

from __future__ import annotations

from agent import names
from agent.core import text
from agent.core.details import Details
from agent.core.marker import Marker, culprit_of, device_of
from agent.core.model import Culprit, Failure, Kind, Verdict

PERMANENT_ERROR = "driver-permanent-error"
MARKER = "driver-marker"
ERROR_INFO = "driver-error-info"
RETRY_INFO = "driver-retry-info"
BAD_REQUEST = "driver-bad-request"
PRECONDITION = "driver-precondition-failure"
RESERVED = frozenset(
    {PERMANENT_ERROR, MARKER, ERROR_INFO, RETRY_INFO, BAD_REQUEST, PRECONDITION, "default"}
)
"""Ids that no rule may have."""


def of_field(failure: Failure) -> Verdict | None:
    """`permanent_error`, field 3 of the prepare response (KEP-5322)."""
    if not failure.permanent_error:
        return None
    return Verdict(Kind.PERMANENT, Culprit.UNKNOWN, PERMANENT_ERROR, explicit=True)


def of_marker(found: Marker | None) -> Verdict | None:
    """The plain-text convention of docs/for-driver-authors.md."""
    if found is None:
        return None
    return _verdict(MARKER, found.kind, found.culprit, found.device, found.retry_after)


def of_error_info(said: Details) -> Verdict | None:
    """An ErrorInfo whose domain is ours: its reason is a verdict, its metadata say who and what."""
    if said.domain != names.DOMAIN or said.reason.lower() not in set(Kind):
        return None
    culprit = culprit_of(said.metadata.get("culprit", "")) or Culprit.UNKNOWN
    device = device_of(said.metadata.get("device", ""))
    return _verdict(ERROR_INFO, Kind(said.reason.lower()), culprit, device, said.retry_after)


def of_details(said: Details) -> Verdict | None:
    """RetryInfo, BadRequest, PreconditionFailure, the one that is least final first."""
    if said.retry_after is not None:
        return Verdict(
            Kind.TRANSIENT,
            Culprit.UNKNOWN,
            RETRY_INFO,
            f"The driver asks to be called again after {said.retry_after:g} s.",
            retry_after=said.retry_after,
        )
    if said.bad_request:
        what = text.clean("; ".join(said.bad_fields), 300) or "the request"
        return Verdict(
            Kind.PERMANENT, Culprit.PARAMETERS, BAD_REQUEST, f"The driver refuses {what}"
        )
    if said.precondition_failure:
        what = text.clean("; ".join(said.preconditions), 300) or "something"
        return Verdict(
            Kind.AMBIGUOUS, Culprit.UNKNOWN, PRECONDITION, f"Not as the driver needs it: {what}"
        )
    return None


def _verdict(
    rule: str, kind: Kind, culprit: Culprit, device: str | None, retry_after: float | None
) -> Verdict:
    device = device if culprit is Culprit.DEVICE else None
    wait = retry_after if kind is not Kind.PERMANENT else None
    return Verdict(kind, culprit, rule, device=device, retry_after=wait)
