"""The one place that knows the version; importing it costs nothing."""

__version__ = "0.1.0"
