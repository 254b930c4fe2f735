import pytest

from agent.core.model import Transport
from agent.core.transport import of_words


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("dial unix /a/dra.sock: connect: connection refused", 14, Transport.REFUSED),
        ("[Errno 111] Connect call failed /a/dra.sock", None, Transport.REFUSED),
        ("dial unix /a: connect: no such file or directory", 14, Transport.GONE),
        ("[Errno 2] No such file or directory", None, Transport.GONE),
        ("error reading from server: EOF", 14, Transport.RESET),
        ("Connection lost", None, Transport.RESET),
        ("context deadline exceeded", 4, Transport.DEADLINE),
        ("", 4, Transport.DEADLINE),
        ("context canceled", 1, Transport.CANCELLED),
        ("", 1, Transport.CANCELLED),
        ("Stream reset by remote party, error_code: 8", None, Transport.CANCELLED),
        ("unexpected content-type text/html", 13, Transport.PROTOCOL),
        ("who knows", None, Transport.RESET),
    ],
)
def test_words(text: str, code: int | None, kind: Transport) -> None:
    assert of_words(text, code) is kind
