"""An OTLP/HTTP receiver: keeps every span it is sent, decoded."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan


@dataclass(frozen=True, slots=True)
class Received:
    """One span with what its resource and scope said."""

    span: ProtoSpan
    resource: dict[str, Any]
    schema_url: str

    @property
    def attributes(self) -> dict[str, Any]:
        return plain(self.span.attributes)

    @property
    def trace_id(self) -> str:
        return self.span.trace_id.hex()


def plain(pairs: Any) -> dict[str, Any]:
    """OTLP key values as a dict of Python values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Receiver:
    """`async with Receiver() as r:`; `r.endpoint` is what goes into `tracing.endpoint`."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.endpoint = ""
        self._changed = asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        self.headers.append(dict(request.headers))
        for group in message.resource_spans:
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Received(span, plain(group.resource.attributes), scope.schema_url)
                    )
        self._changed.set()
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    async def wait(self, enough: Callable[[list[Received]], bool], limit: float = 10.0) -> None:
        """Until what arrived is `enough`; TimeoutError after `limit` seconds."""
        async with asyncio.timeout(limit):
            while not enough(self.spans):
                self._changed.clear()
                await self._changed.wait()
