"""dra-node-agent: sits between the kubelet and the DRA drivers of a node."""

__version__ = "0.1.0"  # the distribution's too; not from its metadata, whose reader costs 2 MiB
