"""A one-node Kubernetes cluster: etcd, API server, controllers, scheduler, containerd, kubelet."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from ..build import Kube
from . import objects
from .api import Api, ApiError
from .components import KUBELET_PORT, SERVER, Components
from .process import Process
from .runtime import Runtime
from .waiting import wait_for

# Tests see a second attempt of the kubelet after seconds; its own period is a minute and more.
FAST: dict[str, Any] = {"syncFrequency": "5s"}
SLOW: dict[str, Any] = {"syncFrequency": "1m", "nodeStatusUpdateFrequency": "10s"}


class Node:
    """The cluster and its only node. Fixed ports: it lives in a network namespace of its own."""

    name = "node-a"
    server = SERVER

    def __init__(self, folder: Path, kube: Kube, debs: Path) -> None:
        self.folder = folder
        self.kube = kube
        self.kubelet_root = folder / "k"
        self.registry = self.kubelet_root / "plugins_registry"
        self.plugins = self.kubelet_root / "plugins"
        self.timings: dict[str, float] = {}
        self._kubelet_changes: dict[str, Any] = {}
        self._outage = False  # the API server was away since the last heal()
        self._made = made = Components(folder, kube, debs)
        self.logs, self.pki = made.logs, made.pki
        self.admin_kubeconfig = made.admin_kubeconfig
        self.api = Api(self.server, self.pki.ca, client=made.admin)
        self.runtime = Runtime(folder / "c", debs, self.logs / "containerd.log")
        self.etcd = made.etcd()
        self.apiserver = made.apiserver()
        self.controllers = made.controllers()
        self.scheduler = made.scheduler()
        self.kubelet = made.kubelet(self.name, self.kubelet_root)

    @property
    def processes(self) -> tuple[Process, ...]:
        control = (self.etcd, self.apiserver, self.controllers, self.scheduler)
        return (*control, self.runtime.process, self.kubelet)

    # Bringing up and down

    def up(self) -> None:
        began = time.monotonic()

        def lap(what: str) -> None:
            self.timings[what] = round(time.monotonic() - began, 1)

        self.runtime.start()
        self.etcd.start()
        self.apiserver.start()
        self.runtime.load_images()
        lap("images loaded")
        self.wait_apiserver()
        for each in objects.CLAIMS_FOR_NODES:
            self.api.apply(each)
        lap("API server ready")
        self.controllers.start()
        self.scheduler.start()
        self.start_kubelet()
        lap("node ready")

    def down(self) -> None:
        """Ends everything, users of a service before the service."""
        self.kubelet.stop()
        # The others have nothing to save; after SIGTERM the API server would wait up to a minute
        # for watches that nobody needs any more.
        for process in (self.scheduler, self.controllers, self.apiserver, self.etcd):
            process.kill()
        self.runtime.stop()

    def heal(self) -> None:
        """Starts again what a test has left ended or changed; runs after every test."""
        for process in (self.etcd, self.controllers, self.scheduler):
            if not process.running:
                process.start()
        if not self.apiserver.running:
            self.start_apiserver()
        if self._outage:
            # Watches of those who lived through it come back after up to a minute and a half.
            for process in (self.controllers, self.scheduler):
                process.kill()
                process.start()
        if self._outage or self._kubelet_changes or not self.kubelet.running:
            self.restart_kubelet()
        self._outage = False

    # The API server

    def start_apiserver(self, limit: float = 60) -> None:
        self.apiserver.start()
        self.wait_apiserver(limit)

    def wait_apiserver(self, limit: float = 60) -> None:
        def ready() -> bool:
            self.apiserver.expect_running()
            return self.api.raw("GET", "/readyz")[0] == 200

        wait_for(ready, limit, "API server ready")

    def kill_apiserver(self) -> None:
        """The API server vanishes, its connections are reset; start_apiserver brings it back."""
        self._outage = True
        self.apiserver.kill()

    # The kubelet

    def start_kubelet(self, limit: float = 60, **config: Any) -> None:
        """Starts the kubelet with changes to its configuration and waits until it works.

        Without changes it has FAST periods; `**SLOW` gives it its own. heal() undoes changes.
        """
        self._kubelet_changes = config
        settings = {**self._made.kubelet_settings(self.runtime.socket), **FAST, **config}
        self._made.kubelet_config.write_text(json.dumps(settings))
        before = self._heartbeat()
        self.kubelet.start()

        def ready() -> bool:
            self.kubelet.expect_running()
            found = self._ready_condition()
            return found.get("status") == "True" and found.get("lastHeartbeatTime", "") != before

        wait_for(ready, limit, "node ready", every=0.2)

    def stop_kubelet(self) -> None:
        self.kubelet.stop()

    def kill_kubelet(self) -> None:
        self.kubelet.kill()

    def restart_kubelet(self, *, kill: bool = False, **config: Any) -> None:
        if kill:
            self.kill_kubelet()
        else:
            self.stop_kubelet()
        self.start_kubelet(**config)

    def kubelet_metrics(self) -> str:
        """The kubelet's metrics, among them dra_grpc_operations_duration_seconds."""
        kubelet = Api(f"https://127.0.0.1:{KUBELET_PORT}", self.pki.ca, client=self._made.admin)
        status, body = kubelet.raw("GET", "/metrics")
        assert status == 200, body
        return body.decode()

    def _ready_condition(self) -> dict[str, str]:
        try:
            node = self.api.get(f"/api/v1/nodes/{self.name}")
        except ApiError:
            return {}
        conditions: list[dict[str, str]] = node["status"].get("conditions", [])
        return next((found for found in conditions if found["type"] == "Ready"), {})

    def _heartbeat(self) -> str:
        """Changes once a started kubelet has reported, which a Ready left from before does not."""
        return self._ready_condition().get("lastHeartbeatTime", "")

    # For people

    def save_logs(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.logs, target)
