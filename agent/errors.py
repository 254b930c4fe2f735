"""Errors that cross a module border. Foreign exceptions are turned into these where they arise."""

from __future__ import annotations

from agent.core.model import Transport


class AgentError(Exception):
    """Base of all errors of our own."""


class UserError(AgentError):
    """A mistake of the user: `problems` are whole lines for a person. Exit code 2, no traceback."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class TransportError(AgentError):
    """A call that got no gRPC answer. `sent` is False when the peer certainly saw nothing of it."""

    def __init__(self, kind: Transport, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.sent = sent
