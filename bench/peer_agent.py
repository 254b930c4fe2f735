"""peer_agent.py LISTEN UPSTREAM COLLECTOR: the agent's own way of a call between two given sockets.

Server, proxy, plan and channel as in `dra-agent run`, with metrics and sampled traces on and logs
at the default level; only registration and reporting are left out, for there is no kubelet here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from typing import Any

import uvloop

from agent.aio import Tasks
from agent.core.held import HeldVerdicts
from agent.observe import logs, tracing
from agent.observe.metrics import Metrics
from agent.proxy.context import Context
from agent.proxy.flights import Flights
from agent.proxy.proxy import Proxy
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from agent.settings.model import AgentConfig, NodeIdentity, Rules
from agent.settings.model import Tracing as TracingSettings
from agent.settings.rulefiles import load_rules


class OneDriver:
    """A link with one instance that is always there."""

    name = "bench.example.com"
    away_since = None
    registered = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def pick(self, service: str) -> Channel:
        return self._channel

    async def wait_connected(self, timeout: float) -> bool:
        return True


async def main(listen: str, upstream: str, collector: str) -> None:
    logs.setup("info", "json")
    tasks, settings = Tasks(), AgentConfig()
    channel = Channel(upstream)
    await channel.connect()
    link: Any = OneDriver(channel)
    context = Context(
        settings=settings,
        rules=load_rules(Rules()),
        metrics=Metrics(),
        tracing=tracing.make(
            TracingSettings(endpoint=collector), NodeIdentity(node_name="bench-node"), os.environ
        ),
        tasks=tasks,
        flights=Flights(tasks),
        held=HeldVerdicts(settings.outcome.hold, settings.outcome.hold_max),
        random=random.random,
        wall=time.time,
    )
    proxy = Proxy(context, lambda: [link])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(listen)
    server = Server(unary=proxy.unary(link), stream=proxy.stream(link))
    await server.start(listen)
    await asyncio.Event().wait()


uvloop.run(main(*sys.argv[1:4]))
