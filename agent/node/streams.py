"""Calls that the agent does not know: passed through to the instance kubelet would have called."""

from __future__ import annotations

from agent.core.model import Status
from agent.node.link import Link
from agent.rpc.call import UNAVAILABLE, ServerStream, StreamHandler


def relay_to(link: Link) -> StreamHandler:
    """Return the handler that relays any method of any cardinality byte for byte.

    Without a connected instance it answers UNAVAILABLE, never UNIMPLEMENTED: kubelet takes the
    latter of a health service as final.
    """

    async def relay(stream: ServerStream) -> None:
        service = stream.method.strip("/").rpartition("/")[0]
        channel = link.pick(service)
        if channel is None:
            await stream.end(Status(UNAVAILABLE, f"driver {link.name} is not connected"))
            return
        await channel.relay(stream.method, stream)

    return relay
