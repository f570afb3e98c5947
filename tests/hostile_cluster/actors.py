"""Lying actors through every format of `endpoints`: only addresses of real nodes may appear, and no model may move."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from fleetctl.cli.endpoints import endpoints_of
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.planner.sources import find_ready
from fleetctl.render.endpoint_formats import FORMATS, upstream_of
from tests.cluster_stand_in import serve
from tests.hostile_cluster.lies import CANARY, FLEET, HONEST, LARGE, NODE_IPS, SMALL, Lies, lying_cluster
from tests.hostile_cluster.programs import PROGRAMS, Program
from tests.hostile_cluster.readers import READERS, Named

ABOUT = "actors of every shape lie about their address, node, fleet and name; each format is loaded by its program"
OFTEN = 5
"""The programs load every so many cases, and the first one."""
NAMES = {SMALL: SMALL, LARGE: "Org Large #1", CANARY: SMALL}
FLEET_FILE = f"""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: {FLEET}}}
spec:
  models:
""" + "".join(f"""\
  - key: {json.dumps(key)}
    replicas: 1
    serving: {{name: {json.dumps(name)}}}
    workers: [{{name: main, members: [{{resources: {{cpus: 1}}, engine: {{command: [serve]}}}}]}}]
""" for key, name in NAMES.items())


def run(cases: int, seed: int) -> dict[str, object]:
    """Run `cases` clusters; returns how many lies were told, refused and loaded, and the failures."""
    fleet = inspect_bytes([SourceBytes("fleet.yaml", FLEET_FILE.encode())]).sound()
    counts, failures, skipped = Counter[str](), list[str](), list[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-cluster-")))
        programs = dict[str, Program]()
        for output_format, program in PROGRAMS.items():
            if made := program.start(stack, folder):
                programs[output_format] = made
            else:
                skipped.append(output_format)
        for number in range(cases):
            lies = lying_cluster(seed, number)
            where = f"case {number}, again with --seed {seed} --cases {number + 1}"
            try:
                seen = _read(lies)
                counts["refused"] += sum(len(replica.refused) for replica in seen.replicas)
                counts["endpoints"] += _check(seen, fleet, programs if number % OFTEN == 0 else {}, counts)
                counts["actors"] += len(lies.cluster.actors)
            except (AssertionError, ValueError, KeyError, TypeError) as error:
                failures.append(f"{where}: {type(error).__name__}: {error}")
    return {"cases": cases, "seed": seed, **counts, "skipped": skipped, "failures": failures}


def _read(lies: Lies) -> Inventory:
    with serve(lies.cluster), DashboardClient(lies.cluster.url) as client:
        return Live(client, lambda: "2026-03-04T12:00:00Z").read()


def _check(seen: Inventory, fleet: ResolvedFleet, programs: dict[str, Program], counts: Counter[str]) -> int:
    """Check all files made from one inventory, with the fleet file and without; returns the number of endpoints."""
    for source in find_ready(seen).pools.values():
        for one in source.sources:
            _require_real(one.address)
    total = 0
    for with_fleet in (None, fleet):
        served = endpoints_of(seen, with_fleet)
        names = NAMES if with_fleet else dict(zip(NAMES, NAMES, strict=True))
        for output_format, write in FORMATS.items():
            text = write(served)
            text.encode()
            named = READERS[output_format](text)
            for _, address in named:
                _require_real(address)
            _require_honest(output_format, named, names)
            total += len(named)
            if output_format in programs:
                programs[output_format].load(text, named)
                counts[f"loaded as {output_format}"] += 1
    return total


def _require_real(address: str) -> None:
    """Raise AssertionError unless this is a node's address, in its shortest form, and a port."""
    host, _, port = address.rpartition(":")
    assert host in [f"[{ip}]" if ":" in ip else ip for ip in NODE_IPS], f"{address} is not a node's"
    assert re.fullmatch("[1-9][0-9]{0,4}", port), address
    assert int(port) <= 65_535, address


def _require_honest(output_format: str, named: Named, names: dict[str, str]) -> None:
    """Raise AssertionError unless the honest models have their endpoints under their own names."""
    for key, endpoints in HONEST.items():
        name = key if output_format == "prometheus" else names[key]
        name = upstream_of(name) if output_format == "nginx" else name
        for endpoint in endpoints:
            assert (name, endpoint) in named, f"{output_format}: {key} has lost {endpoint}: {named}"
