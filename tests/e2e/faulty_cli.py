"""The fleetctl command, shipping an agent with a fault: `python faulty_cli.py FAULT ARGUMENTS...`."""

from __future__ import annotations

import sys

from faults import faulty_package

import fleetctl.apply.jobs
from fleetctl.cli import entry

fleetctl.apply.jobs.agent_package = faulty_package(sys.argv[1])
sys.exit(entry.run(sys.argv[2:]))
