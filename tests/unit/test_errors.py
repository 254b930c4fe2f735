from __future__ import annotations

from agent.core.model import Transport
from agent.errors import AgentError, TransportError, UserError


def test_a_user_error_is_whole_lines() -> None:
    error = UserError("config.yaml: a: wrong", "config.yaml: b: wrong")
    assert error.problems == ("config.yaml: a: wrong", "config.yaml: b: wrong")
    assert str(error) == "config.yaml: a: wrong\nconfig.yaml: b: wrong"
    assert isinstance(error, AgentError)


def test_a_transport_error_says_whether_the_peer_saw_anything() -> None:
    error = TransportError(Transport.REFUSED, "connection refused", sent=False)
    assert (error.kind, error.text, error.sent) == (Transport.REFUSED, "connection refused", False)
    assert str(error) == "connection refused"
    assert isinstance(error, AgentError)
