"""What can go wrong with the API server, in our own words."""

from __future__ import annotations

from agent.errors import AgentError


class KubeError(AgentError):
    """Base. `code` is the HTTP status, 0 where there was none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class NotFound(KubeError):
    """No such object, or another one of that name: its UID is not the one we meant."""


class Conflict(KubeError):
    """The object changed meanwhile (409), or exists already."""


class Denied(KubeError):
    """RBAC (403) or an admission policy (422) says no. Asking again is pointless."""


class Invalid(KubeError):
    """The API server does not accept the request (400, 422 and the like)."""


class Expired(KubeError):
    """The resourceVersion is too old (410): list again."""


class Unavailable(KubeError):
    """No answer, or one that says to come back: 401 (token rotation), 429, 5xx."""


def from_status(code: int, message: str) -> KubeError:
    """Make the error for an HTTP status and the message of the API's Status body."""
    text = f"{code}: {message}"[:1024]
    if code == 404:
        return NotFound(text, code)
    if code == 409:
        return Conflict(text, code)
    if code == 410:
        return Expired(text, code)
    if code == 403:
        return Denied(text, code)
    if code in {401, 429} or code >= 500:
        return Unavailable(text, code)
    if code == 422 and "metadata.uid" in message and "immutable" in message:
        # A UID in a patch is a precondition; a mismatch is told this way, not as a 409.
        return NotFound(text, code)
    if code == 422 and ("AdmissionPolicy" in message or "denied" in message.lower()):
        return Denied(text, code)
    return Invalid(text, code)
