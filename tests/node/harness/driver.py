"""The scripted driver as a process, its control file and its log of calls."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cluster import Node
from .objects import device_class
from .process import Process
from .waiting import wait_for


@dataclass(frozen=True)
class Call:
    """What reached the driver for one claim of one call."""

    t: float
    began: float
    op: str
    claim: str
    uid: str
    devices: tuple[str, ...]
    error: str
    code: int
    deadline: float
    instance: str


class Driver:
    """One instance of a driver. Two with one name and different `instance` are a rolling update.

    The control file and the log belong to the name: instances share them, as a second life does.
    """

    def __init__(
        self,
        node: Node,
        binary: Path,
        name: str,
        *,
        devices: int = 4,
        instance: str = "",
        registry: Path | None = None,
        publish: bool = True,
        versions: str = "v1,v1beta1",
        health: str = "unsupported",
        one_socket: bool = False,
    ) -> None:
        """`versions` of the DRAPlugin service; `health`: versions of that service, or "none".

        `one_socket`: it serves calls on its registration socket, and names that as endpoint.
        """
        self.node = node
        self.name = name
        self.instance = instance
        self.registry = registry or node.registry
        self.data = node.plugins / name
        suffix = f"-{instance}" if instance else ""
        self.registration_socket = self.registry / f"{name}{suffix}-reg.sock"
        self.socket = self.registration_socket if one_socket else self.data / f"dra{suffix}.sock"
        self.control = node.folder / f"{name}.control.json"
        self.log = node.logs / f"{name}.calls.jsonl"
        self.process = Process(
            f"driver {name}{suffix}",
            (
                binary,
                f"-name={name}",
                f"-node={node.name}",
                f"-kubeconfig={node.admin_kubeconfig}",
                f"-registry={self.registry}",
                f"-data={self.data}",
                f"-control={self.control}",
                f"-log={self.log}",
                f"-devices={devices}",
                f"-publish={str(publish).lower()}",
                f"-instance={instance}",
                f"-versions={versions}",
                f"-health={health}",
                f"-one-socket={str(one_socket).lower()}",
            ),
            log=node.logs / f"driver-{name}{suffix}.log",
            env={"PATH": os.environ.get("PATH", "")},
        )
        self._publish = publish

    def start(self, limit: float = 30, *, registered: bool = True) -> None:
        """Starts it and waits until its devices are published and someone has registered it.

        Who registers is the kubelet or an agent that stands between: both call
        NotifyRegistrationStatus. `registered=False` for when neither runs.
        """
        self.node.api.apply(device_class(self.name))
        lives = len(self._entries(m="started"))
        notices = len(self.registrations())
        self.process.start()

        def up() -> bool:
            self.process.expect_running()
            known = not registered or len(self.registrations()) > notices
            return known and len(self._entries(m="started")) > lives

        wait_for(up, limit, f"registration of {self.name}")
        if self._publish:
            wait_for(lambda: self.node.api.slices(self.name), limit, f"slices of {self.name}")

    def remove(self) -> None:
        """Ends it and removes what it left, so that the next test may use the name."""
        self.process.stop()
        for left in (self.registration_socket, self.socket, self.control, self.log):
            left.unlink(missing_ok=True)
        for found in self.node.api.slices(self.name):
            name = found["metadata"]["name"]
            self.node.api.delete(f"/apis/resource.k8s.io/v1/resourceslices/{name}")

    def stop(self) -> int:
        """SIGTERM: the helper removes its sockets."""
        return self.process.stop()

    def kill(self) -> int:
        """SIGKILL: its sockets stay behind as files."""
        return self.process.kill()

    # The script

    def rules(self, *rules: dict[str, Any]) -> None:
        """Sets the control file. The first rule that matches and is not used up decides.

        Keys: op, claim, device, code, text, times, sleepMs, stubborn, permanent (see script.go).
        The ops GetInfo, NotifyRegistrationStatus, health (see health.go) and drop (conns.go) are
        for no claim.
        """
        fresh = self.control.with_suffix(".new")
        fresh.write_text(json.dumps(list(rules)))
        fresh.rename(self.control)

    def fail(self, text: str, **rule: Any) -> None:
        """The usual script: every prepare (or `times` of each claim) fails with a text."""
        self.rules({"op": "prepare", "text": text, **rule})

    def drop(self) -> None:
        """Closes all connections at the service socket; the driver goes on."""
        before = len(self._entries(m="dropped"))
        self.rules({"op": "drop"})
        wait_for(lambda: len(self._entries(m="dropped")) > before, 10, "connections dropped")
        self.heal()

    def heal(self) -> None:
        self.rules()

    # What reached it

    def calls(self, op: str = "", claim: str = "") -> list[Call]:
        """Answered calls, one entry per claim; `claim` is a substring of the claim's name."""
        return [
            Call(
                t=entry["t"],
                began=entry["began"],
                op=entry["m"],
                claim=entry["claim"],
                uid=entry["uid"],
                devices=tuple(entry["devices"] or ()),
                error=entry["error"],
                code=entry["code"],
                deadline=entry.get("deadline", 0.0),
                instance=entry["instance"],
            )
            for entry in self._entries()
            if entry["m"] in ({op} if op else {"prepare", "unprepare"}) and claim in entry["claim"]
        ]

    def prepares(self, claim: str = "") -> list[Call]:
        return self.calls("prepare", claim)

    def unprepares(self, claim: str = "") -> list[Call]:
        return self.calls("unprepare", claim)

    def arrivals(self, method: str = "NodePrepareResources") -> list[dict[str, Any]]:
        """Calls as they came in on the wire, answered or not; claims are UIDs."""
        return self._entries(m="arrive", method=method)

    def answers(self, method: str = "NodePrepareResources") -> list[dict[str, Any]]:
        """Answers as they went out, with gRPC `code` and `took`."""
        return self._entries(m="answer", method=method)

    def registrations(self) -> list[bool]:
        """What NotifyRegistrationStatus has told this instance, in order."""
        entries = self._entries(m="arrive", method="NotifyRegistrationStatus")
        return [entry.get("registered", False) for entry in entries]

    def entries(self) -> list[dict[str, Any]]:
        """Everything in the log, of all instances."""
        if not self.log.exists():
            return []
        # A line without its end is still being written.
        return [json.loads(line) for line in self.log.read_text().split("\n")[:-1]]

    def forget(self) -> None:
        """Empties the log, so that a test counts its own calls only."""
        os.truncate(self.log, 0)

    def _entries(self, **match: str) -> list[dict[str, Any]]:
        match["instance"] = self.instance
        entries = self.entries()
        return [e for e in entries if all(e.get(key) == value for key, value in match.items())]
