"""What the importers of Kubernetes' kinds share: objects, pods, containers, probes."""
