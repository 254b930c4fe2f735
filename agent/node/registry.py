"""Finds drivers, owns their links, and says how each generation behaves."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from agent.aio import Tasks
from agent.core import paths
from agent.errors import UserError
from agent.node.choice import Choice
from agent.node.direct import Direct
from agent.node.factory import Factory
from agent.node.hooks import Handlers, Hooks
from agent.node.instance import Instance, State
from agent.node.link import Link
from agent.node.lock import Locks, holder_text
from agent.node.stale import remove_stale
from agent.node.watch import Found, Snapshot, changes, scan, snapshots
from agent.settings.model import AgentConfig, NodeIdentity

# SIGTERM: a call in flight gets this long, in seconds.
_DRAIN = 10.0


class Registry:
    """Runs until it is cancelled or drained."""

    def __init__(
        self,
        *,
        settings: AgentConfig,
        identity: NodeIdentity,
        handlers: Handlers,
        on_trigger: Callable[[str, str], None],
        hooks: Hooks | None = None,
    ) -> None:
        """`on_trigger(driver, reason)`: held verdicts of the driver are to be dropped."""
        self.watching = False
        self._settings = settings
        self._hooks = dataclasses.replace(hooks or Hooks(), on_trigger=on_trigger)
        self._registration = settings.registration_settings
        self._overlay = self._registration.kind == "overlay"
        self._root = identity.kubelet_root
        self.directory = paths.registry_dir(self._root)
        if not self._overlay:
            self.directory = self._registration.intake_dir or paths.intake_dir(self._root)
        self._choice = Choice(
            allow=settings.drivers.allow,
            deny=settings.drivers.deny,
            only=identity.only_driver,
            plugin_only=self._overlay,
        )
        self._factory = Factory(settings, identity.kubelet_root, handlers)
        self._locks = Locks(
            self._root,
            only_driver=identity.only_driver,
            holder=holder_text(identity.pod_namespace, identity.pod_name),
        )
        self._direct = Direct(
            paths.registry_dir(self._root),
            intake=self.directory,
            choice=dataclasses.replace(self._choice, plugin_only=True),
            rescan=settings.drivers.rescan,
            on_found=self._hooks.on_direct,
        )
        self._links: dict[str, Link] = {}
        self._instances: dict[str, Instance] = {}
        self._left: list[Instance] = []  # whose calls in flight may still end
        self._appeared = 0
        self._opened = False
        self._draining = False
        self._stop = asyncio.Event()
        self._tasks = Tasks(self._hooks.on_crash)

    @property
    def links(self) -> Mapping[str, Link]:
        """By driver name."""
        return self._links

    @property
    def direct(self) -> Mapping[str, str]:
        """Intake: sockets of our drivers in kubelet's own registry, and whose they are."""
        return self._direct.found

    async def run(self) -> None:
        """Serve until `drain()` has ended or this is cancelled.

        Raises UserError when another agent serves the same drivers or a directory is missing.
        """
        self.open()
        try:
            watch = self._tasks.start("registry", self._watch())
            stop = self._tasks.start("registry stop", self._stop.wait())
            if not self._overlay:
                self._tasks.start("direct registrations", self._direct.run())
            await asyncio.wait({watch, stop}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
        finally:
            await self._close()

    async def drain(self, limit: float = _DRAIN) -> None:
        """Retire each generation when it has no call in flight, or after `limit` seconds.

        Drivers stay connected meanwhile; then `run()` returns.
        """
        self._draining = True
        drains = [
            self._tasks.start(f"drain {link.name}", link.drain(limit))
            for link in list(self._links.values())
        ]
        # One that failed was logged by its owner: the others' calls have their time all the same.
        await asyncio.gather(*drains, return_exceptions=True)
        self._stop.set()

    def renew(self, driver: str, reason: str, *, restart: bool = False) -> None:
        """Register a driver again: a prepare is known to have passed us by. Unknown: nothing."""
        if link := self._links.get(driver):
            link.renew(reason, restart=restart)

    def describe(self) -> dict[str, Any]:
        """State for people, as JSON types."""
        served = {id(one) for link in self._links.values() for one in link.instances}
        return {
            "kind": self._registration.kind,
            "directory": self.directory,
            "watching": self.watching,
            "links": [self._links[name].describe() for name in sorted(self._links)],
            "others": [
                {**one.describe(), "blockedBy": self._locks.blocked.get(_name(one), "")}
                for path, one in sorted(self._instances.items())
                if id(one) not in served
            ],
        }

    def open(self) -> None:
        """Check directories, take the lock, remove stale sockets; `run()` does it unless done.

        Apart so that a program can refuse to start before anything runs. Raises UserError.
        """
        if self._opened:
            return
        if problem := paths.root_problem(self._root):
            raise UserError(problem)
        scan(paths.registry_dir(self._root))
        try:
            os.makedirs(paths.endpoint_dir(self._root), mode=0o700, exist_ok=True)
            if not self._overlay:
                # As kubelet's own registry; drivers may run as another member of root's group.
                os.makedirs(self.directory, mode=0o750, exist_ok=True)
        except OSError as error:
            raise UserError(f"{error.filename}: cannot make it: {error.strerror}") from error
        self._locks.acquire()
        remove_stale(self._locks)
        self._opened = True

    async def _watch(self) -> None:
        async for snapshot in snapshots(self.directory, rescan=self._settings.drivers.rescan):
            if not self._draining:
                await self._apply(snapshot)
                self.watching = True

    async def _apply(self, snapshot: Snapshot) -> None:
        for found in snapshot.found:
            await self._refresh(found)
        known = {path: one.identity for path, one in self._instances.items()}
        left, appeared = changes(known, snapshot.found)
        self._left = [one for one in self._left if not one.ended]
        for path in left:
            instance = self._instances.pop(path)
            self._left.append(instance)
            if link := self._links.get(_name(instance)):
                link.remove(instance)
            await instance.leave()
        for found in sorted(appeared, key=lambda one: one.identity.ctime_ns):
            self._appeared += 1
            self._instances[found.path] = instance = Instance(
                found,
                appeared=self._appeared,
                at_start=snapshot.first,
                choice=self._choice,
                reconnect=self._settings.drivers.reconnect,
                on_state=self._changed,
            )
            instance.start()
        for instance in self._instances.values():
            instance.poke()
            if _name(instance) in self._locks.blocked:
                self._changed(instance)
        for link in self._links.values():
            link.look()

    async def _refresh(self, found: Found) -> None:
        """Until a generation was published, one that says the same is no other instance."""
        known = self._instances.get(found.path)
        if known is not None and await known.says_the_same(found.identity):
            self.renew(_name(known), "driver-registered", restart=True)

    def _changed(self, instance: Instance) -> None:
        """An instance's state is another."""
        if instance.state in (State.UNKNOWN, State.IGNORED):
            return
        name = _name(instance)
        link = self._links.get(name)
        if link is not None and instance in link.instances:
            link.changed()
        elif not self._draining:
            link = link or self._make_link(name)
            if link is not None:
                link.add(instance)

    def _make_link(self, name: str) -> Link | None:
        if not self._locks.take(name):
            return None
        link = Link(
            name,
            periods=self._factory.periods,
            make=self._factory.make,
            hooks=self._hooks,
            on_idle=self._forget,
        )
        self._links[name] = link
        link.start()
        return link

    def _forget(self, link: Link) -> None:
        """A driver left for good."""
        if self._links.get(link.name) is link:
            del self._links[link.name]
            self._locks.drop(link.name)
            self._hooks.on_gone(link.name)
            self._tasks.start(f"close {link.name}", link.close())

    async def _close(self) -> None:
        self.watching = False
        await self._tasks.close()
        for link in self._links.values():
            await link.close()
        for instance in (*self._instances.values(), *self._left):
            await instance.close()
        self._locks.close()
        self._opened = False


def _name(instance: Instance) -> str:
    return instance.info.name if instance.info else ""
