"""Pods come and go while drivers, agent and kubelet are ended at random moments."""
