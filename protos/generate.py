"""Generate agent/pb from the .proto files beside this one: `python protos/generate.py [directory]`.

Only messages: the gRPC side is agent/rpc, which carries bytes. Needs grpcio-tools of the `dev`
group, whose version decides the oldest protobuf runtime that can load the result.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
TARGET = SOURCES.parent / "agent" / "pb"


def generate(target: Path) -> None:
    """Write one `<name>_pb2.py` and `.pyi` per .proto file; RuntimeError when protoc fails."""
    from grpc_tools import protoc

    arguments = [
        "protoc",
        f"--proto_path={SOURCES}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        *(str(path) for path in sorted(SOURCES.glob("*.proto"))),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed, see its output above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
