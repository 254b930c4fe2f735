"""HTTP connections, bounded by address: nobody can take the place of kubelet's probes."""

from __future__ import annotations

import asyncio

from aiohttp import web

PER_ADDRESS = 16
"""Connections that one address may hold; the oldest goes when there is one more."""

IDLE = 120.0
"""Seconds after which a connection without a request is closed; Prometheus comes more often."""


class Connections:
    """A factory of protocols for `create_server`."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        asyncio.get_running_loop().call_soon(self._trim)
        return self._server()

    def _trim(self) -> None:
        held: dict[str, int] = {}
        for one in reversed(self._server.connections):
            if one.transport is None or not one.peername:
                continue
            address = str(one.peername[0])
            held[address] = held.get(address, 0) + 1
            if held[address] > PER_ADDRESS:
                one.force_close()
