"""dra-node-agent: sits between the kubelet and the DRA drivers of a node."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dra-node-agent")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0+source"
