from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from agent.core.model import ClaimRef
from agent.errors import UserError
from agent.observe import tracing
from agent.settings.model import NodeIdentity
from agent.settings.model import Tracing as Settings

IDENTITY = NodeIdentity(node_name="node-a")
ON = Settings(endpoint="http://collector:4318")


@pytest.mark.parametrize(
    ("endpoint", "env", "url"),
    [
        ("", {}, ""),
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/base", {}, "http://c:4318/base/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:4318"}, "http://e:4318/v1/traces"),
        ("http://c", {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://e"}, "https://e/v1/traces"),
        ("http://c", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://e/x"}, "http://e/x"),
        ("http://c", {"OTEL_SDK_DISABLED": "True"}, ""),
        ("http://c", {"OTEL_SDK_DISABLED": "false"}, "http://c/v1/traces"),
        ("http://c", {"OTEL_TRACES_EXPORTER": "none"}, ""),
        ("http://c", {"OTEL_TRACES_EXPORTER": "console"}, ""),
        ("http://c", {"OTEL_TRACES_EXPORTER": "otlp,console"}, "http://c/v1/traces"),
        ("http://c", {"OTEL_TRACES_EXPORTER": "zipkin"}, "http://c/v1/traces"),
    ],
)
def test_where_spans_go(endpoint: str, env: dict[str, str], url: str) -> None:
    wanted = tracing.plan(Settings(endpoint=endpoint), env)
    assert wanted.url == url
    assert wanted.console == ("console" in env.get("OTEL_TRACES_EXPORTER", ""))


@pytest.mark.parametrize(
    ("env", "source"),
    [
        ({}, "tracing.endpoint"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_an_endpoint_that_is_no_url_is_the_users_mistake(env: dict[str, str], source: str) -> None:
    with pytest.raises(UserError) as caught:
        tracing.make(Settings(endpoint="collector:4318"), IDENTITY, env)
    assert caught.value.problems[0].startswith(source + ": ")
    assert "http://collector:4318" in caught.value.problems[0]


def test_unknown_words_and_protocols_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tracing.plan(ON, {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "OTEL_TRACES_EXPORTER" in caplog.text
    assert "http/protobuf" in caplog.text


async def test_off_means_spans_that_do_nothing() -> None:
    off = tracing.make(Settings(), IDENTITY, {})
    assert isinstance(off, tracing.NullTracing)
    call = off.call("/a.B/C", "d", [ClaimRef("ns", "uid", "name")], 1.0)
    assert call.trace_id == ""
    call.attempt(1, [], "/x.sock").end(None, "gone", error_type="gone")
    call.end(0, [])
    await off.close(1.0)


def test_off_does_not_import_the_sdk() -> None:
    code = (
        "import sys; from agent.observe import tracing;"
        "from agent.settings.model import NodeIdentity, Tracing;"
        "tracing.make(Tracing(), NodeIdentity(node_name='n'), {});"
        "sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_batches(caplog: pytest.LogCaptureFixture) -> None:
    assert tracing.batch({}) == (2048, 5000, 512, 30000)
    env = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "0200"}
    assert tracing.batch(env) == (100, 200, 100, 30000)
    assert not caplog.text
    for word in ("abc", "0", "-1", "1.5", "9" * 5000, "\u0663"):
        caplog.clear()
        assert tracing.batch({"OTEL_BSP_MAX_QUEUE_SIZE": word}) == tracing.Batch()
        (line,) = caplog.messages
        said = "OTEL_BSP_MAX_QUEUE_SIZE: ignored, not a whole number above 0; 2048 holds"
        assert line == said
