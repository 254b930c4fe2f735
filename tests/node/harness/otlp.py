"""A tracing backend: an OTLP/HTTP receiver that keeps spans as plain dicts."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")


class Collector:
    """Receives on a free port of the loopback; `endpoint` is the base URL without /v1/traces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[dict[str, Any]] = []
        self._status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                self.send_response(collector._receive(body))
                self.send_header("Content-Type", "application/x-protobuf")
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing: the test's output is for the test."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.05,), daemon=True)
        self._thread.start()

    def spans(self, name: str = "", **attributes: Any) -> list[dict[str, Any]]:
        """Received spans in order of their start, of a name and with attributes where given."""
        with self._lock:
            found = sorted(self._spans, key=lambda span: float(span["start"]))
        if name:
            found = [span for span in found if span["name"] == name]
        return [span for span in found if attributes.items() <= span["attributes"].items()]

    def refuse(self, status: int = 503) -> None:
        """Answers with an error from now on; refuse(200) ends it."""
        self._status = status

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self, body: bytes) -> int:
        if self._status != 200:
            return self._status
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for resource in request.resource_spans:
                about = _attributes(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self._spans += [_span(span, about) for span in scope.spans]
        return 200


def _span(span: Span, resource: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": KINDS[span.kind],
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "start": span.start_time_unix_nano / 1e9,
        "end": span.end_time_unix_nano / 1e9,
        "status": STATUSES[span.status.code],
        "message": span.status.message,
        "attributes": _attributes(span.attributes),
        "events": [{"name": e.name, "attributes": _attributes(e.attributes)} for e in span.events],
        "links": [{"trace": link.trace_id.hex(), "id": link.span_id.hex()} for link in span.links],
        "resource": resource,
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind) if kind else None
