"""What the rest of the program plugs into the node side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.rpc.call import Handler, StreamHandler

if TYPE_CHECKING:
    from agent.node.link import Link


class Handlers(Protocol):
    """What the proxy provides for the endpoints of a link."""

    def unary(self, link: Link) -> Callable[[str], Handler | None]:
        """Handlers of the unary methods it knows, by full method name."""

    def stream(self, link: Link) -> StreamHandler:
        """Handler of everything else."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called when something changed; must not block or raise."""

    # driver, reason: held verdicts are to be dropped, a FailPod not yet sent to be cancelled
    on_trigger: Callable[[str, str], None] = lambda driver, reason: None
    on_generation: Callable[[str, str], None] = lambda driver, reason: None
    on_driver: Callable[[str, bool], None] = lambda driver, up: None
    on_registered: Callable[[str, bool], None] = lambda driver, registered: None
    on_gone: Callable[[str], None] = lambda driver: None  # left for good
    # driver, reason of the newest generation: kubelet has a generation and a connection to it,
    # for the first time or after it had none
    on_ready: Callable[[str, str], None] = lambda driver, reason: None
    # intake: a driver registers with kubelet itself; once for each of its sockets
    on_direct: Callable[[str], None] = lambda driver: None
    # name of a task of the node side, and what ended it
    on_crash: Callable[[str, BaseException], None] = lambda name, error: None


@dataclass(slots=True)
class Told:
    """What the hooks were told last of one driver; each is called only for news."""

    up: bool | None = None
    registered: bool | None = None
    ready: bool = False

    def tell(self, hooks: Hooks, link: Link, *, up: bool) -> None:
        """Call the hooks whose value is another."""
        if up is not self.up:
            self.up = up
            hooks.on_driver(link.name, up)
        if link.registered is not self.registered:
            self.registered = link.registered
            hooks.on_registered(link.name, link.registered)
        if link.renewal.ready is not self.ready:
            self.ready = link.renewal.ready
            if self.ready:
                hooks.on_ready(link.name, link.renewal.reason)
