"""On what a benchmark ran."""

from __future__ import annotations

import os
import platform


def machine_text() -> str:
    """Return the kind of processor, how many there are, and the system."""
    return f"{platform.machine()} {os.cpu_count()} cpus, {platform.system()}"
