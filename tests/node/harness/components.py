"""The command lines of the cluster's components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..build import Kube
from .pki import CLUSTER_IP, Pki, kubeconfig
from .process import Process
from .runtime import tool_environment

ETCD_PORT, API_PORT, KUBELET_PORT, KUBELET_HEALTH_PORT = 2379, 6443, 10250, 10248
# The address that the launcher gives the bridge of the network namespace.
NODE_IP = "10.221.0.1"
SERVER = f"https://127.0.0.1:{API_PORT}"


class Components:
    """Makes the processes of a cluster in a folder; starts none of them."""

    def __init__(self, folder: Path, kube: Kube, debs: Path) -> None:
        self.folder = folder
        self.logs = folder / "log"
        self.logs.mkdir(parents=True)
        self.pki = Pki(folder / "pki")
        self.admin = self.pki.sign("admin", "/O=system:masters/CN=admin")
        self.admin_kubeconfig = self._user("admin", self.admin)
        self.kubelet_config = folder / "kubelet.json"
        # The default is made in /usr, which is the machine's own here too.
        self.volume_plugins = folder / "volume-plugins"
        self._kube = kube.binary
        self._gates = kube.gates
        self._debs = debs

    def etcd(self) -> Process:
        url = f"http://127.0.0.1:{ETCD_PORT}"
        listen = (f"--listen-client-urls={url}", f"--advertise-client-urls={url}")
        data = f"--data-dir={self.folder / 'etcd'}"
        return self._process("etcd", self._debs / "usr/bin/etcd", data, *listen)

    def apiserver(self) -> Process:
        crt, key = self.pki.sign("apiserver", "/CN=kube-apiserver")
        admin_crt, admin_key = self.admin
        return self._process(
            "kube-apiserver",
            self._kube,
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            "--bind-address=127.0.0.1",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={crt}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.pki.ca}",
            f"--service-account-key-file={self.pki.account_public}",
            f"--service-account-signing-key-file={self.pki.account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={CLUSTER_IP.rsplit('.', 1)[0]}.0/24",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={admin_crt}",
            f"--kubelet-client-key={admin_key}",
            # Does nothing as long as the kubelet does not write what is behind them.
            *(f"--feature-gates={gate}=true" for gate in self._gates),
        )

    def controllers(self) -> Process:
        return self._controller(
            "kube-controller-manager",
            "--use-service-account-credentials",
            f"--flex-volume-plugin-dir={self.volume_plugins}",
            f"--service-account-private-key-file={self.pki.account_key}",
            f"--root-ca-file={self.pki.ca}",
        )

    def scheduler(self) -> Process:
        return self._controller("kube-scheduler")

    def kubelet(self, name: str, root: Path) -> Process:
        """The kubelet of node `name`; it reads `kubelet_config` when it starts."""
        user = self._user(
            "kubelet", self.pki.sign("kubelet", f"/O=system:nodes/CN=system:node:{name}")
        )
        return self._process(
            "kubelet",
            self._kube,
            "kubelet",
            f"--config={self.kubelet_config}",
            f"--kubeconfig={user}",
            f"--hostname-override={name}",
            f"--root-dir={root}",
            # Without it the kubelet asks a name server that is not there, 10 s each time.
            f"--node-ip={NODE_IP}",
            "--v=4",
        )

    def kubelet_settings(self, containerd: Path) -> dict[str, Any]:
        crt, key = self.pki.folder / "kubelet.crt", self.pki.folder / "kubelet.key"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": KUBELET_PORT,
            "healthzPort": KUBELET_HEALTH_PORT,
            "tlsCertFile": str(crt),
            "tlsPrivateKeyFile": str(key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            # Node Ready after a (re)start within a second instead of ten.
            "nodeStatusUpdateFrequency": "1s",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "volumePluginDir": str(self.volume_plugins),
            "podLogsDir": str(self.folder / "podlogs"),
            "containerRuntimeEndpoint": f"unix://{containerd}",
            # The node's disk is a tmpfs that nobody fills; a full machine must not evict the tests.
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
        }

    def _controller(self, name: str, *flags: str) -> Process:
        config = self._user(name, self.pki.sign(name, f"/CN=system:{name}"))
        uses = (f"--{use}kubeconfig={config}" for use in ("", "authentication-", "authorization-"))
        return self._process(
            name,
            self._kube,
            name,
            *uses,
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            *flags,
        )

    def _process(self, name: str, *argv: str | Path) -> Process:
        log = self.logs / f"{name}.log"
        return Process(name, argv, log=log, env=tool_environment(self._debs), cwd=self.folder)

    def _user(self, name: str, pair: tuple[Path, Path]) -> Path:
        user = {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
        return kubeconfig(self.folder / f"{name}.kubeconfig", SERVER, self.pki.ca, user)
