"""A DRA driver on the published library kubernetes-pydra: `pydra_driver.py NAME REG ENDPOINT`.

The library's own server and handlers; only what a vendor writes is here. Runs in an environment
of its own (tests/wire/build.py), for one process can have only one definition of a proto package.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydra.core.server import DraNodeServer  # type: ignore[import-not-found]


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


class Driver(DraNodeServer):  # type: ignore[misc]
    """Fails for claims whose name begins with "fail"."""

    def get_devices(self) -> list[str]:
        return ["gpu-0"]

    async def prepare_hardware(self, claim_uid: str, namespace: str, name: str) -> list[str]:
        say(event="call", claim=name, operation="prepare")
        if name.startswith("fail-"):
            raise RuntimeError("no: " + "x" * int(name.partition("-")[2]))
        if name.startswith("slow"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                say(event="cancelled", claim=name)
                raise
        return ["gpu.example.com/device=gpu-0"]

    async def unprepare_hardware(self, claim_uid: str, namespace: str, name: str) -> None:
        say(event="call", claim=name, operation="unprepare")

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        say(event="notified", registered=request.plugin_registered, error=request.error)
        return await super().NotifyRegistrationStatus(request, context)

    def publish_resource_slice(self) -> None:
        """Called by the library once it serves; there is no API server here."""
        say(event="ready")


async def main() -> None:
    name, registration, endpoint = sys.argv[1:4]
    await Driver(name, endpoint, registration_socket_path=registration).serve()


if __name__ == "__main__":
    asyncio.run(main())
