"""The same scenario on the kubelet directly and through the agent, compared from outside."""
