"""Finds the Chromium of this machine, with a message for machines without one."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tests.external_programs import find_program

NAMES = ("chromium", "chromium-browser", "google-chrome")
ABSENT = ("no Chromium was found: install Debian's package `chromium` (apt-get install chromium), or name a Chromium "
          "or Chrome in FLEETCTL_CHROMIUM")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync")
"""Flags that stop requests of the browser's own."""
ONE_PROCESS = ("--renderer-process-limit=1", "--process-per-site", "--disable-site-isolation-trials", "--disable-gpu")
"""Flags that make all pages share one renderer process, which takes half a second to start."""


def find_chromium(environ: Mapping[str, str]) -> str | None:
    """The path of the browser: the one in FLEETCTL_CHROMIUM, else the first on PATH."""
    return find_program(environ, "FLEETCTL_CHROMIUM", *NAMES)


def launch_options(path: str) -> dict[str, object]:
    """The launch options; the sandbox does not work for root."""
    return {"executable_path": path, "args": [*QUIET, *ONE_PROCESS], "chromium_sandbox": os.geteuid() != 0}
