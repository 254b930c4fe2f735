"""Makes generations: paths, GetInfo's answer, and handlers, by kind of registration."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from agent import names
from agent.core import paths
from agent.core.model import Status
from agent.core.renewal import Periods
from agent.errors import TransportError
from agent.node.generation import Behaviour, Generation, Sockets
from agent.node.hooks import Handlers
from agent.node.info import republished
from agent.node.instance import NOTIFY_TIMEOUT
from agent.node.link import Link
from agent.rpc.call import UNAVAILABLE, Answer, Request, status_of
from agent.settings.model import AgentConfig


class Factory:
    """What overlay and intake do differently is here."""

    def __init__(self, settings: AgentConfig, kubelet_root: str, handlers: Handlers) -> None:
        self._registration = settings.registration_settings
        self._hold = settings.drivers.driver_absence_hold
        self._overlay = self._registration.kind == "overlay"
        self._root = kubelet_root
        self._handlers = handlers
        self._used: set[str] = set()

    @property
    def periods(self) -> Periods:
        """Periods of a link.

        In intake kubelet knows only us: a new instance is published at once and the old
        generation goes, as a driver would do it itself; a restart of kubelet, which registers
        us again by itself, renews nothing.
        """
        overlay = self._registration.overlay
        return Periods(
            renew_delay=overlay.renew_delay if self._overlay else 0.0,
            renew_again=tuple(overlay.renew_again) if self._overlay else (),
            retire_after=overlay.retire_after if self._overlay else 0.0,
            max_generations=overlay.max_generations,
            hold=self._hold,
            renew_on_notify=self._overlay,
        )

    def make(self, link: Link) -> Generation:
        """Return the next generation of a link, not yet published."""
        newest = link.newest
        if newest is None or newest.info is None:
            raise AssertionError("a generation needs an instance")
        name = self._fresh()
        endpoint = paths.endpoint_path(self._root, link.name, name)
        sockets = Sockets(
            driver=link.name,
            name=name,
            registration=paths.registration_path(self._root, link.name, name),
            endpoint=endpoint,
            info=republished(newest.info, endpoint, plugin_only=self._overlay),
        )
        behaviour = Behaviour(
            unary=self._handlers.unary(link),
            stream=self._handlers.stream(link),
            get_info_delay=self._registration.overlay.get_info_delay if self._overlay else 0.0,
            notify=None if self._overlay else _relay_notify(link),
            on_notify=link.on_notify,
            on_connect=link.on_connect,
            silent=names.HEALTH_METHODS if self._overlay else (),
        )
        return Generation(sockets, behaviour)

    def _fresh(self) -> str:
        while (name := secrets.token_hex(3)) in self._used:
            pass
        self._used.add(name)
        return name


def _relay_notify(link: Link) -> Callable[[Request], Awaitable[Answer]]:
    """Intake: the driver hears how kubelet took it, and kubelet hears the driver's answer."""

    async def relay(request: Request) -> Answer:
        instance = link.newest
        if instance is None:
            return Answer(status=Status(UNAVAILABLE, f"driver {link.name} is not registered"))
        try:
            return await instance.registration(request.method, request.body, NOTIFY_TIMEOUT)
        except TransportError as error:
            return Answer(status=status_of(error))

    return relay
