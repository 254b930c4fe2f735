"""What the node tests stand on: a real Kubernetes node, scripted drivers, the agent as a process.

Every helper starts processes of its own and ends only those. The only sleep is in `waiting`.
"""
