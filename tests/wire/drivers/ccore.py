"""A DRA driver on gRPC C-core: `ccore.py NAME REGISTRATION ENDPOINT [health]`.

It does what the name of a call's first claim says and tells what it sees as JSON lines;
tests/wire/harness.py has the list.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from agent.pb import dra_health_v1_pb2 as health
from agent.pb import dra_v1_pb2 as dra
from agent.pb import pluginregistration_v1_pb2 as registration

PLUGIN = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
LATER_FIELD = b"\xfa\x01\x05later"


def say(**line: Any) -> None:
    """One event."""
    print(json.dumps(line), flush=True)


def failure(size: int) -> tuple[str, bytes]:
    """A long text with characters that need escaping, and details."""
    text = "é%\n" * 3
    text += "x" * max(0, size - len(text.encode()))
    # google.rpc.Status: an answer to a claim has the same field 2, a string.
    message = dra.NodePrepareResourceResponse(error=text).SerializeToString()
    return text, b"\x08\x09" + message + b"\x1a\x06\x0a\x04some"


class Driver:
    """The handlers; messages are bytes."""

    def __init__(self, name: str, endpoint: str, with_health: bool) -> None:
        versions = ["v1.DRAPlugin"] + ["v1.DRAResourceHealth"] * with_health
        self.info = registration.PluginInfo(
            type="DRAPlugin", name=name, endpoint=endpoint, supported_versions=versions
        )
        self.with_health = with_health

    def get_info(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        return self.info.SerializeToString()

    def notified(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        told = registration.RegistrationStatus.FromString(body)
        say(event="notified", registered=told.plugin_registered, error=told.error)
        if not told.plugin_registered:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed registration process: {told.error}")
        return b""

    def prepare(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = dict(context.invocation_metadata())
        raw = {k: v if isinstance(v, bytes) else v.encode("latin-1") for k, v in metadata.items()}
        left = context.time_remaining()
        say(
            event="call",
            method=PLUGIN + "NodePrepareResources",
            body=base64.b64encode(body).decode(),
            metadata=[[k, base64.b64encode(v).decode()] for k, v in raw.items()],
            leftMs=-1 if left is None else int(left * 1000),
        )
        claims = dra.NodePrepareResourcesRequest.FromString(body).claims
        word, _, number = claims[0].name.partition("-")
        cdi = "example.com/device=gpu-0"
        if word == "meta":
            back = tuple((k, metadata[k]) for k in ("x-text", "x-bytes-bin") if k in metadata)
            context.send_initial_metadata(back)
            context.set_trailing_metadata(back)
        elif word == "fail":
            self.fail(int(number), context)
        elif word == "slow":
            gone = threading.Event()
            context.add_callback(gone.set)
            gone.wait(60)
            say(event="cancelled", claim=claims[0].name)
        elif word == "wait":
            time.sleep(int(number) / 1000)
        elif word == "large":
            cdi = "x" * int(number)
        answer = dra.NodePrepareResourcesResponse()
        for claim in claims:
            answer.claims[claim.uid].devices.add(
                pool_name="pool", device_name="gpu-0", cdi_device_ids=[cdi]
            )
        return answer.SerializeToString() + LATER_FIELD

    def unprepare(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        claims = dra.NodeUnprepareResourcesRequest.FromString(body).claims
        word, _, number = claims[0].name.partition("-")
        if word == "fail":
            self.fail(int(number), context)
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in claims:
            answer.claims[claim.uid].error = ""
        return answer.SerializeToString()

    def fail(self, size: int, context: grpc.ServicerContext) -> None:
        text, details = failure(size)
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)

    def anything(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        return body

    def chat(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for message in messages:
            yield message
            yield message
        context.set_trailing_metadata((("x-after", "last"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "ends so")

    def watch(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        gone = threading.Event()
        context.add_callback(gone.set)
        report = health.NodeWatchResourcesResponse()
        report.devices.add(health=health.HealthStatus.HEALTHY).device.device_name = "gpu-0"
        for _ in range(3):
            yield report.SerializeToString()
            time.sleep(0.05)
        gone.wait(60)
        say(event="cancelled", claim="health")


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """What is not here, C-core itself answers with UNIMPLEMENTED."""

    def __init__(self, driver: Driver) -> None:
        self.methods = {
            "/pluginregistration.Registration/GetInfo": unary(driver.get_info),
            "/pluginregistration.Registration/NotifyRegistrationStatus": unary(driver.notified),
            PLUGIN + "NodePrepareResources": unary(driver.prepare),
            PLUGIN + "NodeUnprepareResources": unary(driver.unprepare),
            "/example.v7.Later/Anything": unary(driver.anything),
            "/example.v7.Later/Chat": stream(driver.chat),
        }
        if driver.with_health:
            self.methods["/v1.DRAResourceHealth/NodeWatchResources"] = stream(driver.watch)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self.methods.get(details.method)


def unary(function: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(function)


def stream(function: Any) -> grpc.RpcMethodHandler:
    return grpc.stream_stream_rpc_method_handler(function)


def main() -> None:
    name, registration_socket, endpoint, *rest = sys.argv[1:]
    # A driver with default options, but for the one that vendors set to send long error texts.
    options = (("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 1 << 20))
    server = grpc.server(futures.ThreadPoolExecutor(16), options=options)
    server.add_generic_rpc_handlers((Handlers(Driver(name, endpoint, bool(rest))),))
    for path in (endpoint, registration_socket):
        if os.path.exists(path):
            os.unlink(path)
        server.add_insecure_port(f"unix:{path}")
    server.start()
    say(event="ready")
    for line in sys.stdin:
        if line.strip() == "goaway":
            server.stop(10).wait()
            say(event="stopped")


if __name__ == "__main__":
    main()
