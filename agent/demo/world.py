"""One demo node: API server, claim controller and kubelet in this process, drivers and agent as
children, all sockets below one temporary directory.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from agent import names
from agent.aio import Tasks
from agent.demo.api import ApiServer
from agent.demo.calls import Call, read_calls
from agent.demo.controller import ClaimController
from agent.demo.driver import DEFAULT_VERSIONS, Options
from agent.demo.kubelet import PLUGINS, REGISTRY, Kubelet
from agent.demo.objects import NAMESPACE, Want, add_node, add_pod
from agent.demo.periods import SHORT, Periods
from agent.demo.processes import Child, TookTooLong, json_lines, until
from agent.demo.script import DeviceLine, Rule, ScriptFile, write_script
from agent.demo.store import ApiError, Object, Store

NODE = "node-a"
OnCrash = Callable[[str, BaseException], None]
START_LIMIT = 20.0  # seconds for a Python process to be up, on a busy machine


class World:
    """start() and close(); usable without an agent."""

    def __init__(
        self, root: Path, *, periods: Periods = SHORT, on_crash: OnCrash | None = None
    ) -> None:
        self.root = root
        self.store = Store()
        self.api = ApiServer(self.store)
        self.kubelet = Kubelet(root, self.store, node=NODE, periods=periods)
        self.agent: Child | None = None
        self.drivers: dict[str, Child] = {}
        self.periods = periods
        self._tasks = Tasks(on_crash)
        self._scripts: dict[str, ScriptFile] = {}
        self._wants: list[tuple[str, Want]] = []

    async def start(self) -> None:
        """Bring up API server, controller and kubelet."""
        (self.root / "run").mkdir()
        add_node(self.store, NODE)
        await self.api.start()
        self.api.write_kubeconfig(self.root / "run" / "kubeconfig")
        self._tasks.start("claim controller", ClaimController(self.store).run())
        self.kubelet.start()

    async def close(self) -> None:
        """End the children and everything else."""
        children = [*self.drivers.values(), *([self.agent] if self.agent else [])]
        await asyncio.gather(*(child.end() for child in children))
        await self.kubelet.close()
        await self._tasks.close()
        await self.api.stop()

    async def restart_kubelet(self) -> None:
        """End kubelet as SIGKILL would, and start it again."""
        old = self.kubelet
        await old.close()
        self.kubelet = Kubelet(self.root, self.store, node=NODE, periods=self.periods, after=old)
        self.kubelet.start()

    # Drivers

    def script(self, driver: str, *rules: Rule) -> None:
        """Set what a driver does from now on."""
        self._scripts[driver] = ScriptFile(self._devices(driver), rules)
        write_script(self._run(driver, "script"), self._scripts[driver])

    async def start_driver(self, driver: str, *, instance: str = "", wait: bool = True) -> None:
        """Start a driver process and wait until kubelet has it."""
        if driver not in self._scripts:
            self.script(driver)
        options = self.options(driver, instance)
        key = "-".join(filter(None, (driver, instance)))
        child = self.drivers[key] = Child(options.arguments, output=self._run(key, "err"))
        await child.start()
        if wait:
            await until(
                lambda: any(
                    plugin.endpoint == str(options.endpoint) and plugin.connected
                    for plugin in self.kubelet.plugins.of(driver)
                ),
                f"driver {key} registered with kubelet; it said: {child.text()[-500:]}",
                limit=START_LIMIT,
            )

    def options(self, driver: str, instance: str = "", versions: str = DEFAULT_VERSIONS) -> Options:
        """Command line of a driver process."""
        return Options(
            name=driver,
            registry=self.root / REGISTRY,
            data=self.root / PLUGINS / driver,
            script=self._run(driver, "script"),
            log=self._run(driver, "log"),
            instance=instance,
            versions=versions,
        )

    def calls(self, driver: str, operation: str = names.PREPARE, pod: str = "") -> list[Call]:
        """Calls that a driver's processes saw, in order, of all pods or of one."""
        return read_calls(self._run(driver, "log"), operation, pod)

    # The agent

    async def start_agent(self, config: Mapping[str, object], *, wait: bool = True) -> None:
        """Start the agent with a config of these keys; wait until kubelet calls go through it."""
        self.agent = self.new_agent(config)
        await self.agent.start()
        if wait:
            await self.agent_serves()

    def new_agent(
        self, config: Mapping[str, object], *, kubeconfig: bool = True, name: str = "agent"
    ) -> Child:
        """An agent process for this node that is not started yet."""
        head = {"apiVersion": names.CONFIG_API_VERSION, "kind": names.CONFIG_KIND}
        file = self._run(name, "yaml")
        file.write_text(yaml.safe_dump({**head, "log": {"format": "json"}, **config}))
        access = ("--kubeconfig", str(self._run("kubeconfig"))) if kubeconfig else ()
        return Child(
            (
                *("-m", "agent", "run", "--config", str(file), "--node-name", NODE),
                *("--kubelet-root", str(self.root), "--http-listen", "127.0.0.1:0", *access),
            ),
            output=self._run(name, "err"),
        )

    async def agent_serves(self) -> None:
        """Wait until kubelet's choice for each driver is the agent."""
        for driver in dict.fromkeys(self._scripts):
            try:
                await until(
                    lambda driver=driver: self.through_agent(driver),  # type: ignore[misc]
                    f"calls for {driver} to go through the agent",
                    limit=START_LIMIT,
                )
            except TookTooLong as error:
                said = self.agent.text()[-2000:] if self.agent else ""
                raise TookTooLong(f"{error}; the agent said:\n{said}") from None

    def through_agent(self, driver: str) -> bool:
        """True if the next call of a driver goes through the agent."""
        plugin = self.kubelet.plugins.pick(driver)
        return plugin is not None and plugin.connected and names.ENDPOINT_DIR in plugin.endpoint

    @property
    def agent_url(self) -> str:
        """Base URL of the agent's HTTP; empty while it has not said so."""
        url = ""
        for line in json_lines(self._run("agent", "err")):
            if line.get("msg") == "http listening":
                url = f"http://{line['host']}:{line['port']}"
        return url

    async def kill_agent(self) -> None:
        """SIGKILL."""
        assert self.agent is not None
        self.agent.send(signal.SIGKILL)
        await self.agent.wait()

    # Pods

    def add_pod(self, name: str, *wants: Want) -> Object:
        """Create a pod with claims, and tell the drivers which devices they are."""
        self._wants += [(name, want) for want in wants]
        for driver in {want.driver for want in wants}:
            self.script(driver, *self._scripts.get(driver, ScriptFile()).rules)
        return add_pod(self.store, name, NODE, wants)

    def pod(self, name: str) -> Object | None:
        """The pod now; None if it is gone."""
        try:
            return self.store.get("pods", NAMESPACE, name)
        except ApiError:
            return None

    def phase(self, name: str) -> str:
        """The pod's phase now; empty if it is gone."""
        pod = self.pod(name)
        return str(pod["status"].get("phase", "")) if pod else ""

    def condition(self, name: str, kind: str = names.CONDITION_PREPARED) -> Object:
        """One condition of a pod; empty if it has none of that type."""
        pod = self.pod(name) or {"status": {}}
        found = [c for c in pod["status"].get("conditions") or [] if c["type"] == kind]
        return found[0] if found else {}

    async def wait_phase(self, name: str, phase: str, *, limit: float = 10.0) -> None:
        """Wait until a pod is in a phase."""
        await until(lambda: self.phase(name) == phase, f"pod {name} {phase}", limit=limit)

    async def wait_calls(self, driver: str, count: int, *, limit: float = 10.0) -> None:
        """Wait until a driver was asked to prepare so often."""
        what = f"{count} calls at {driver}"
        await until(lambda: len(self.calls(driver)) >= count, what, limit=limit)

    def _devices(self, driver: str) -> dict[str, tuple[DeviceLine, ...]]:
        return {
            f"{pod}-{want.name}": tuple(
                DeviceLine(f"{want.name}-{i}", NODE, device)
                for i, device in enumerate(want.devices)
            )
            for pod, want in self._wants
            if want.driver == driver
        }

    def _run(self, name: str, suffix: str = "") -> Path:
        return self.root / "run" / ".".join(filter(None, (name, suffix)))
