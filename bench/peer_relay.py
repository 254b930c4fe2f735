"""peer_relay.py LISTEN UPSTREAM: the barest transparent relay on plain grpclib, as a measure.

What it costs is what the library costs: no retries, no claims read, nothing told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any

import uvloop
from grpclib.client import Channel
from grpclib.client import Stream as UpStream
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase, StatusDetailsCodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server


class Plain(CodecBase):
    """Messages are bytes and stay so."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> Any:
        return message

    def decode(self, data: Any, message_type: Any) -> Any:
        return data


class PlainDetails(StatusDetailsCodecBase):
    def encode(self, status: Any, message: Any, details: Any) -> Any:
        return details

    def decode(self, status: Any, message: Any, data: Any) -> Any:
        return data


class AnyMethod(dict[str, Handler]):
    """grpclib looks handlers up here; one is made for whatever is asked."""

    def __init__(self, upstream: Channel) -> None:
        super().__init__()
        self._upstream = upstream

    def get(self, path: str, default: Any = None) -> Any:
        if path not in self:

            async def relay(stream: Any) -> None:
                await self._relay(path, stream)

            self[path] = Handler(relay, Cardinality.UNARY_STREAM, bytes, bytes)
        return self[path]

    async def _relay(self, path: str, down: Any) -> None:
        channel: Any = self._upstream
        request = await down.recv_message()
        up: Any = UpStream(
            channel,
            path,
            down.metadata,
            Cardinality.UNARY_STREAM,
            bytes,
            bytes,
            codec=channel._codec,
            status_details_codec=channel._status_details_codec,
            dispatch=channel.__dispatch__,
            deadline=down.deadline,
        )
        try:
            async with up:
                await up.send_message(request, end=True)
                await up.recv_initial_metadata()
                await down.send_initial_metadata(metadata=up.initial_metadata)
                while (message := await up.recv_message()) is not None:
                    await down.send_message(message)
                await up.recv_trailing_metadata()
        except GRPCError as error:
            await down.send_trailing_metadata(
                status=error.status,
                status_message=error.message,
                status_details=error.details,
                metadata=up.trailing_metadata,
            )
        else:
            await down.send_trailing_metadata(metadata=up.trailing_metadata)


async def main(listen: str, upstream: str) -> None:
    codecs: dict[str, Any] = {"codec": Plain(), "status_details_codec": PlainDetails()}
    server = Server([], **codecs)
    server._mapping = AnyMethod(Channel(path=upstream, **codecs))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(listen)
    await server.start(path=listen)
    await asyncio.Event().wait()


uvloop.run(main(sys.argv[1], sys.argv[2]))
