"""The one place that knows the version; importing it costs nothing."""

__version__ = "0.1.0"
VERSION_LINE = f"fleetctl {__version__} (model replicas on a Ray/GPU fleet)"
