"""The part of fleetctl that runs inside the Ray cluster and carries a plan out.

The client ships this folder as the package `fleetctl_agent` with its job; nothing is installed on the cluster, and
actors get their code by value, so that no node keeps a file of ours that a restart would need. It knows only the
standard library and ray (Python 3.9, Ray 2.49), shares documents with the client but no code, and has no planner in it:
it re-checks what the plan says, creates, and waits. What it writes (marks, repr, events) carries a version, because old
replicas outlive upgrades.
"""
