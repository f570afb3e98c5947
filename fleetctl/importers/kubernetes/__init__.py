"""Shared parts of the importers of Kubernetes kinds: objects, pods, containers, probes."""
