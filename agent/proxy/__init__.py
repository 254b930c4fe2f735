"""Runs the pure plan against drivers: the agent's side of every call kubelet makes."""
