"""Intake: drivers that register with kubelet themselves, so that their calls pass the agent by.

Nothing can be mended here: the driver's pod mounts kubelet's registry. It is found and said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from agent import names
from agent.core import text
from agent.errors import TransportError, UserError
from agent.node.choice import Choice
from agent.node.info import PluginInfo, parse_info
from agent.node.instance import GET_INFO_TIMEOUT
from agent.node.watch import Found, changes, snapshots
from agent.rpc.channel import Channel

log = logging.getLogger(__name__)


class Direct:
    """Looks at kubelet's own registry. `found`: registration socket -> driver name."""

    def __init__(
        self,
        directory: str,
        *,
        intake: str,
        choice: Choice,
        rescan: float,
        on_found: Callable[[str], None],
    ) -> None:
        """`on_found(driver)` is called once for each socket; `rescan` in seconds."""
        self.found: dict[str, str] = {}
        self._directory = directory
        self._intake = intake
        self._choice = choice
        self._rescan = rescan
        self._on_found = on_found
        self._looks = True  # false while the directory is missing
        self._asked: dict[str, Found] = {}  # sockets that answered

    async def run(self) -> None:
        """Look until cancelled. A directory that is missing is looked for at each rescan."""
        while True:
            try:
                await self._follow()
            except UserError as error:
                if self._looks:
                    log.warning("%s", error)
                self._looks = False
                await self._apply(())
                await asyncio.sleep(self._rescan)

    async def _follow(self) -> None:
        async with aclosing(snapshots(self._directory, rescan=self._rescan)) as looks:
            async for look in looks:
                self._looks = True
                await self._apply(look.found)

    async def _apply(self, found: tuple[Found, ...]) -> None:
        known = {path: one.identity for path, one in self._asked.items()}
        left, appeared = changes(known, found)
        for path in left:
            del self._asked[path]
            self._left(path)
        # Those that did not answer are asked again at the next look.
        await asyncio.gather(*(self._ask(one) for one in appeared))

    async def _ask(self, one: Found) -> None:
        channel = Channel(one.path)
        try:
            async with asyncio.timeout(GET_INFO_TIMEOUT):
                await channel.connect()
                answer = await channel.unary(
                    names.REGISTRATION_GET_INFO, b"", timeout=GET_INFO_TIMEOUT
                )
            info = parse_info(answer.body or b"")
        except (TransportError, TimeoutError, ValueError) as error:
            log.debug("%s: %s", text.clean(one.path, 256), error)
            return
        finally:
            await channel.close()
        self._asked[one.path] = one
        self._judge(one.path, info)

    def _judge(self, path: str, info: PluginInfo) -> None:
        if self._choice.refusal(info, info.endpoint or path):
            return
        self.found[path] = info.name
        log.warning(
            "%s registers with kubelet itself (%s): its calls pass the agent by until its pod "
            "mounts %s in place of plugins_registry",
            info.name,
            text.clean(path, 256),
            self._intake,
        )
        self._on_found(info.name)

    def _left(self, path: str) -> None:
        driver = self.found.pop(path, None)
        if driver is not None:
            log.info("%s no longer registers with kubelet itself", driver)
