"""Tests on a real one-node Kubernetes; start them with `tests/node/run.py`."""
