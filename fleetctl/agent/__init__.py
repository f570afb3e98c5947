"""The part of fleetctl that runs inside the Ray cluster and carries out a plan.

The client ships this folder with its job as the package `fleetctl_agent`; nothing is installed on the cluster. Actors
get their code by value, so a restart needs no file of ours on the node. The agent uses only the standard library and
ray (Python 3.9, Ray 2.49). It shares documents with the client but no code, and contains no planner: it re-checks the
plan, creates replicas, and waits. Its marks, reprs and events carry a version, because old replicas outlive upgrades.
"""
