"""A DRA driver that does what a script says: `python -m agent.demo.driver --name … …`.

It registers as drivers do (`<name>-reg.sock` in the registry, `dra.sock` as its endpoint; another
`--instance` has other sockets), serves v1 and v1beta1, and writes each call to a log, one JSON
object a line: {"t", "pid", "what": "start" | "end", "call", "method", "claims", "error"}.
SIGTERM: leaves in order, its sockets unlinked. SIGKILL: its sockets stay.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import names
from agent.core.model import Status
from agent.demo import messages
from agent.demo.script import Rule, Script
from agent.rpc.call import Answer, Handler, Request, ServerStream
from agent.rpc.server import Server

DEFAULT_VERSIONS = "v1.DRAPlugin,v1beta1.DRAPlugin"
UNIMPLEMENTED = 12
OPERATIONS = {names.PREPARE: "prepare", names.UNPREPARE: "unprepare"}


@dataclass(frozen=True, slots=True)
class Options:
    """What a driver process is told."""

    name: str
    registry: Path
    data: Path
    script: Path
    log: Path
    instance: str = ""
    versions: str = DEFAULT_VERSIONS

    @property
    def registration_socket(self) -> Path:
        """Where kubelet finds it."""
        return self.registry / "-".join(filter(None, (self.name, self.instance, "reg.sock")))

    @property
    def endpoint(self) -> Path:
        """Where it is called."""
        return self.data / (f"dra-{self.instance}.sock" if self.instance else "dra.sock")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line after `python`."""
        return (
            *("-m", "agent.demo.driver", "--name", self.name, "--registry", str(self.registry)),
            *("--data", str(self.data), "--script", str(self.script), "--log", str(self.log)),
            *("--instance", self.instance, "--versions", self.versions),
        )


class ScriptedDriver:
    """start() until close()."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._script = Script(options.script)
        self._numbers = itertools.count(1)
        self._log = options.log.open("a", buffering=1)
        self._plugin = Server(unary=self._plugin_method, stream=_no_stream)
        self._registration = Server(unary=self._registration_method, stream=_no_stream)

    async def start(self) -> None:
        """Serve the endpoint, then register."""
        self._options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._plugin.start(str(self._options.endpoint))
        await self._registration.start(str(self._options.registration_socket))

    async def close(self) -> None:
        """Leave in order."""
        await self._registration.close()
        await self._plugin.close()
        self._log.close()

    def _plugin_method(self, method: str) -> Handler | None:
        service, _, name = method.strip("/").rpartition("/")
        versions = self._options.versions.split(",")
        served = [names.PLUGIN_SERVICES[v] for v in versions if v in names.PLUGIN_SERVICES]
        return self._call if service in served and name in OPERATIONS else None

    def _registration_method(self, method: str) -> Handler | None:
        return {
            names.REGISTRATION_GET_INFO: self._get_info,
            names.REGISTRATION_NOTIFY: self._notified,
        }.get(method)

    async def _get_info(self, request: Request) -> Answer:
        info = messages.Info(
            names.PLUGIN_TYPE,
            self._options.name,
            str(self._options.endpoint),
            tuple(self._options.versions.split(",")),
        )
        return Answer(body=messages.info(info))

    async def _notified(self, request: Request) -> Answer:
        registered, error = messages.parse_registration_status(request.body)
        self._write(what="notified", registered=registered, error=error)
        return Answer(body=b"")

    async def _call(self, request: Request) -> Answer:
        name = request.method.rpartition("/")[2]
        operation = OPERATIONS[name]
        claims = messages.parse_claims(name, request.body)
        number = next(self._numbers)
        about: dict[str, Any] = {
            "call": number,
            "method": request.method,
            "claims": [claim.name for claim in claims],
        }
        self._write(what="start", **about)
        rules = {claim.uid: self._script.take(operation, claim) or Rule() for claim in claims}
        await asyncio.sleep(max((rule.delay for rule in rules.values()), default=0.0))
        errors = [rule.error for rule in rules.values() if rule.error]
        self._write(what="end", error="; ".join(errors), **about)
        whole = next((rule for rule in rules.values() if rule.code), None)
        if whole is not None:
            return Answer(status=Status(whole.code, whole.error))
        answers = {
            claim.uid: messages.ClaimAnswer(
                rules[claim.uid].error,
                rules[claim.uid].permanent_error,
                () if rules[claim.uid].error else self._script.devices(claim),
            )
            for claim in claims
        }
        return Answer(body=messages.answers(name, answers))

    def _write(self, **fields: object) -> None:
        line = {"t": time.time(), "pid": os.getpid(), **fields}
        self._log.write(json.dumps(line) + "\n")


async def _no_stream(stream: ServerStream) -> None:
    await stream.end(Status(UNIMPLEMENTED, "this driver has no streams"))


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m agent.demo.driver", description=__doc__)
    parser.add_argument("--name", required=True)
    for flag in ("--registry", "--data", "--script", "--log"):
        parser.add_argument(flag, required=True, type=Path)
    parser.add_argument("--instance", default="")
    parser.add_argument("--versions", default=DEFAULT_VERSIONS)
    return Options(**vars(parser.parse_args(arguments)))


async def serve(options: Options) -> None:
    """Run until SIGTERM or SIGINT."""
    driver = ScriptedDriver(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await driver.start()
    await stop.wait()
    await driver.close()


if __name__ == "__main__":
    asyncio.run(serve(_options(sys.argv[1:])))
