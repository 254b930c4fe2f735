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
    # name of a task of the node side, and what ended it
    on_crash: Callable[[str, BaseException], None] = lambda name, error: None
