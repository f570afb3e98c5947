"""fleetctl: GitOps for model replicas on a Ray/GPU fleet. Plans, says why, and never scales down."""

from fleetctl.version import __version__

__all__ = ["__version__"]
