"""The machine of a benchmark."""

from __future__ import annotations

import os
import platform


def machine_text() -> str:
    """Return the kind and number of processors, and the system."""
    return f"{platform.machine()} {os.cpu_count()} cpus, {platform.system()}"
