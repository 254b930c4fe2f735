"""Certificates and kubeconfigs of the test cluster, made by openssl."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

CLUSTER_IP = "10.0.0.1"
NAMES = f"subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:{CLUSTER_IP}"


class Pki:
    """A certificate authority in a folder, and what it signed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.ca = folder / "ca.crt"
        self._key(folder / "ca.key")
        request = ("req", "-x509", "-key", folder / "ca.key", "-out", self.ca, "-days", "2")
        self._openssl(*request, "-subj", "/CN=ca")
        self.account_key = folder / "accounts.key"
        self.account_public = folder / "accounts.pub"
        self._key(self.account_key)
        self._openssl("pkey", "-in", self.account_key, "-pubout", "-out", self.account_public)
        (folder / "names").write_text(NAMES)

    def sign(self, name: str, subject: str) -> tuple[Path, Path]:
        """Makes a certificate for a subject like `/O=system:nodes/CN=…`; returns (crt, key)."""
        crt, key, csr = (self.folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        self._key(key)
        self._openssl("req", "-new", "-key", key, "-out", csr, "-subj", subject)
        by = ("-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", "2")
        names = ("-extfile", self.folder / "names")
        self._openssl("x509", "-req", "-in", csr, "-out", crt, *by, *names)
        return crt, key

    def _key(self, file: Path) -> None:
        curve = ("-pkeyopt", "ec_paramgen_curve:prime256v1", "-pkeyopt", "ec_param_enc:named_curve")
        self._openssl("genpkey", "-algorithm", "EC", *curve, "-out", file)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(("openssl", *map(str, arguments)), check=True, capture_output=True)


def kubeconfig(file: Path, server: str, ca: Path, user: dict[str, str]) -> Path:
    """Writes a kubeconfig (JSON is YAML) for one user, given as its fields."""
    cluster = {"server": server, "certificate-authority": str(ca)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(content))
    file.chmod(0o600)
    return file
