"""Finds the Chromium of this machine, and says what to do where there is none."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tests.external_programs import find_program

NAMES = ("chromium", "chromium-browser", "google-chrome")
ABSENT = ("no Chromium was found: install Debian's package `chromium` (apt-get install chromium), or name a Chromium "
          "or Chrome in FLEETCTL_CHROMIUM")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync")
"""A browser that talks to nobody by itself."""
ONE_PROCESS = ("--renderer-process-limit=1", "--process-per-site", "--disable-site-isolation-trials", "--disable-gpu")
"""All pages share the process that draws them; to start one costs half a second."""


def find_chromium(environ: Mapping[str, str]) -> str | None:
    """Return the path of the browser to test with: the one that is named, else the first on PATH."""
    return find_program(environ, "FLEETCTL_CHROMIUM", *NAMES)


def launch_options(path: str) -> dict[str, object]:
    """Return how to start it; its sandbox does not work for root."""
    return {"executable_path": path, "args": [*QUIET, *ONE_PROCESS], "chromium_sandbox": os.geteuid() != 0}
