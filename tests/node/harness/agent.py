"""The agent as a process with what its manifests give it, and with no other rights."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from . import daemonset
from .api import Object
from .cluster import Node
from .objects import pod
from .pki import kubeconfig
from .process import Process
from .waiting import wait_for

REPOSITORY = Path(__file__).resolve().parents[3]
MANIFESTS = tuple(
    REPOSITORY / "deploy" / name
    for name in ("00-namespace.yaml", "10-rbac.yaml", "20-admission-policy.yaml")
)
NAMESPACE = ACCOUNT = "dra-agent"
HOST_POD = "dra-agent-host"
# The network namespace is the tests' own. Below the ports that the kernel hands out (32768), so
# that no connection has one of these when an agent starts, or starts again.
_PORTS = itertools.count(20_000)


class Agent:
    """One agent process. Its token is bound to a pod of the node, as if it ran in that pod."""

    def __init__(
        self, node: Node, name: str, *, server: str = "", config: Object | None = None
    ) -> None:
        """`server`: a forwarder to the API server; `config`: the top keys of its file."""
        self.node = node
        self.folder = node.folder / name
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.port = next(_PORTS)
        self._token = self.folder / "token"
        user = {"tokenFile": str(self._token)}
        self.kubeconfig = kubeconfig(
            self.folder / "kubeconfig", server or node.server, node.pki.ca, user
        )
        self.config = self.folder / "config.yaml"
        self.configure(**(config or {}))
        self.process = Process(
            name,
            (
                *daemonset.setpriv(),
                *(sys.executable, "-m", "agent"),
                *daemonset.arguments(
                    {"--config": self.config, "--http-listen": f"127.0.0.1:{self.port}"}
                ),
                # In a pod these are the defaults.
                f"--kubelet-root={node.kubelet_root}",
                f"--kubeconfig={self.kubeconfig}",
            ),
            log=node.logs / f"{name}.log",
            # Nothing of the tests' own environment: it may name an admin's kubeconfig. authorize()
            # adds what the manifest gives.
            env={
                "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                "LANG": "C.UTF-8",
                "HOME": "/nonexistent",
            },
            cwd=REPOSITORY,
        )

    def configure(self, **config: Any) -> None:
        """Writes the configuration file; keys are the top keys of an AgentConfig."""
        header = {"apiVersion": "dra-agent.io/v1alpha1", "kind": "AgentConfig"}
        self.config.write_text(json.dumps({**header, **config}))

    def read_config(self, file: Path) -> None:
        """Before the start: its configuration is another file than its own."""
        self.process.argv.remove(f"--config={self.config}")
        self.config = file
        self.process.argv.append(f"--config={file}")

    # Life

    def start(self, limit: float = 30, *, ready: bool = True) -> None:
        if not self._token.exists():
            self.authorize()
        self.process.start()
        wait_for(self._is_agent, 10, "setpriv to become the agent")
        self.check_privileges()
        if ready:
            self.wait_ready(limit)

    def authorize(self) -> None:
        """Applies the manifests and gets a token: by hand before a start without an API server."""
        install(self.node)
        self.process.env |= daemonset.environment(self.node.api.pod(NAMESPACE, HOST_POD))
        self.refresh_token()

    def wait_ready(self, limit: float = 30) -> None:
        def ready() -> bool:
            self.process.expect_running()
            return self.http("/readyz")[0] == 200

        wait_for(ready, limit, "agent ready")

    def stop(self, limit: float = 20) -> int:
        """SIGTERM; returns the exit code (negative when it had to be killed)."""
        return self.process.stop(limit)

    def kill(self) -> int:
        """SIGKILL: its sockets stay as files."""
        return self.process.kill()

    def remove(self) -> None:
        """Ends it and takes away what a killed one leaves, so that the next test starts clean."""
        self.process.stop()
        shutil.rmtree(self.folder)
        self.process.log.unlink(missing_ok=True)
        for left in self.node.registry.glob("dra-agent~*.sock"):
            left.unlink()
        for left in (self.node.plugins / "dra-agent.io").glob("*.sock"):
            left.unlink()

    def refresh_token(self, seconds: int = 3600) -> None:
        """Writes a new token (at least 600 s) as the kubelet does: at once, by renaming."""
        host = self.node.api.pod(NAMESPACE, HOST_POD)
        token = self.node.api.token(NAMESPACE, ACCOUNT, pod=host, seconds=seconds)
        fresh = self._token.with_suffix(".new")
        fresh.write_text(token)
        fresh.chmod(0o600)
        fresh.rename(self._token)

    @property
    def token(self) -> str:
        """For requests with the agent's own rights: Api(node.server, node.pki.ca, token=…)."""
        return self._token.read_text()

    # Looking at it

    def http(self, path: str, timeout: float = 5) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(repr(error)) from error
        finally:
            connection.close()

    def state(self) -> Object:
        status, body = self.http("/debug/state")
        assert status == 200, body
        answer: Object = json.loads(body)
        return answer

    def metrics(self) -> str:
        status, body = self.http("/metrics")
        assert status == 200, body
        return body

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels; 0 when there is none."""
        total = 0.0
        for sample, pairs, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)", self.metrics(), re.M):
            found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', pairs))
            if sample == name and labels.items() <= found.items():
                total += float(value)
        return total

    def log(self) -> str:
        return self.process.log.read_text()

    def _is_agent(self) -> bool:
        self.process.expect_running()
        command = Path(f"/proc/{self.process.pid}/cmdline").read_bytes().split(b"\0")
        return command[0].decode() == sys.executable

    def check_privileges(self) -> None:
        """Fails the test when the process could do more than its manifests allow."""
        status = self.process.status()
        security = daemonset.container()["securityContext"]
        for ids, wanted in (("Uid", security["runAsUser"]), ("Gid", security["runAsGroup"])):
            assert set(status[ids].split()) == {str(wanted)}, f"{ids} is {status[ids]}"
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, f"{kind} is {status[kind]}"
        assert status["NoNewPrivs"] == str(int(not security["allowPrivilegeEscalation"]))
        environment = self.process.environ()
        assert "KUBECONFIG" not in environment
        secrets = (str(self.node.pki.folder), str(self.node.admin_kubeconfig))
        given = [*environment.values(), *self.process.argv, self.kubeconfig.read_text()]
        leaks = [text for text in given if any(secret in text for secret in secrets)]
        # The certificate of the authority is public and has to be known.
        leaks = [text for text in leaks if "tokenFile" not in text or "client-key" in text]
        assert not leaks, f"the agent could use an admin's rights: {leaks}"


def install(node: Node) -> None:
    """Applies the manifests of deploy/ and the pod the tokens are bound to; again is harmless."""
    for file in MANIFESTS:
        for document in yaml.safe_load_all(file.read_text()):
            if document:
                node.api.apply(document, fieldValidation="Strict")
    daemonset.accepted(node.api)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
    wait_for(lambda: node.api.find(account), 10, "service account of the agent")
    if node.api.find(f"/api/v1/namespaces/{NAMESPACE}/pods/{HOST_POD}") is None:
        node.api.create(pod(NAMESPACE, HOST_POD, serviceAccountName=ACCOUNT, nodeName=node.name))
