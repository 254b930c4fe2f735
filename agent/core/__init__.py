"""What decides. No await, no clock, no random, no I/O: time and jitter are arguments."""
