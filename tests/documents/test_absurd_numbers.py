"""No number in a stored document or a fleet file, however absurd, ends a command as a bug in fleetctl."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import run_here
from random_cases import cases

from fleetctl.documents.base import MOST, Stored

FLEET = yaml.safe_load("""
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  cluster: {grow: [{name: g, max: 3, price: 2, node: {gpus: 4, vram: 80Gi, cpus: 8, memory: 64Gi, labels: {k: g}}}]}
  policy: {maxNewReplicas: 90, maxNewGpus: 90, maxChangePercent: 900, quotas: [{gpus: 90, replicas: 90}],
           cooldown: {failures: 3, first: 5m, max: 1h}}
  history: {keepRuns: 100, keepFor: 7d}
  nodes:
  - {selector: {k: a}, price: 3.5, maxReplicasPerModel: 4, reserve: {vram: 1Gi}, gpuMemory: 80Gi, warm: 1Gi,
     residents: [{memory: 1Gi}]}
  models:
  - {key: m, replicas: 3, priority: 3, startupTimeout: 15m, restart: {max: 3, backoff: 10s}, serving: {weight: 3},
     update: {mode: surge, surge: 1}, model: {parameters: 8B}, workers: [{name: main, members: [
       {resources: {gpus: 1, vram: 10Gi, cpus: 1, memory: 1Gi}, engine: {command: [x]}}]}]}
  - key: v
    replicas: 3
    variants:
    - {name: a, max: 3, workers: [{name: main, members: [{resources: {gpus: 1, vram: 10Gi}, engine: {command: [x]}}]}]}
    - {name: b, min: 1, workers: [{name: main, members: [{resources: {gpus: 0.5, cpus: 1}, engine: {command: [y]}}]}]}
""")
AMOUNTS = {"total": {"GPU": 2, "CPU": 16, "memory": 1 << 36}, "used": {"GPU": 1, "CPU": 1, "memory": 1 << 30},
           "listed": {"GPU": 1, "CPU": 1, "memory": 1 << 20}}
MEMBER = {"group": "main", "copy": 0, "rank": 0, "slot": 0, "nodeId": "a", "gpus": 10_000, "vram": 1 << 30,
          "cpus": 10_000, "memory": 1 << 30, "gpuIndices": [0], "gpuUuids": ["a0"], "port": 80, "address": "10.0.0.1"}
INVENTORY: dict[str, Any] = {
    "formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test",
    "nodes": [{"id": node, "name": node, "labels": {"k": node}, "unreportedCards": 0, "resources": AMOUNTS,
               "slots": {"value": 3, "source": "label"}, "gpus": [
                   {"index": at, "uuid": f"{node}{at}", "memoryTotal": 80 << 30, "memoryUsed": 1 << 30, "share": 1 - at,
                    "memoryForeign": 0, "processes": [{"pid": 4, "memory": 1 << 20}]} for at in (0, 1)]}
              for node in ("a", "b")],
    "replicas": [{"model": "m", "replicaId": 0, "fleet": "lab", "specHash": "h", "restarts": 1, "restartMax": 3,
                  "restartsUsed": 1, "goneWithinS": 3.0, "since": "2026-03-04T11:00:00Z", "members": [MEMBER]}],
    "failures": [{"model": "m", "replicaId": 5, "specHash": "h", "fleet": "lab", "code": "ENGINE_EXITED", "restarts": 1,
                  "gpuIndices": [0], "at": "2026-03-04T11:59:00Z"}],
    "starts": [{"model": "m", "seconds": 40, "specHash": "h", "at": "2026-03-04T11:00:00Z", "bytes": 1000}]}
ABSURD = ("1e305", "1e17", "1e30", str(10**30), "-1", "-1e300", ".nan", ".inf", "9223372036854775807", str(2**63),
          str(10**299), "1e400", "0.1", "1e-320", str(1 << 60), str(1 << 50), "1000000", "1024", "0", "1Ei", "1Pi",
          "30d")
COMMANDS = ("plan", "status", "map", "capacity --model m", "what-if --lose-node a --add-node 8xH200", "inventory")


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(part, (*path, key))
    elif not isinstance(value, bool) and str(value)[:1].isdigit() and "T" not in str(value) and path[-1] != "address":
        yield path


def with_number(document: Any, path: tuple[Any, ...], number: str) -> str:
    changed = json.loads(json.dumps(document))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "NUMBER"
    return json.dumps(changed).replace('"NUMBER"', number)


@pytest.mark.parametrize(("kind", "document"), [("inventory", INVENTORY), ("fleet", FLEET)])
def test_an_absurd_number_in_a_file_is_refused_or_planned_with(tmp_path: Path, kind: str, document: dict[str, Any]):
    files = {"fleet": FLEET, "inventory": INVENTORY}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(text))
    rng = random.Random(kind)
    places = [path for path in numbers_in(document) if path != ("formatVersion",)]
    for _ in range(cases(600)):
        path, number, command = rng.choice(places), rng.choice(ABSURD), rng.choice(COMMANDS)
        (tmp_path / f"{kind}.yaml").write_text(with_number(document, path, number))
        fleet = [] if command == "inventory" else ["-f", "fleet.yaml"]
        done = run_here(*command.split(), *fleet, "--inventory", "inventory.yaml", env={"HOME": str(tmp_path)},
                        folder=tmp_path)
        assert "bug in fleetctl" not in done.stderr, (path, number, command, done.stderr)
        if done.returncode not in (0, 2, 3):
            assert f"{kind}.yaml:1:" in done.stderr, (path, number, command, done.stderr)


def test_the_position_of_an_absurd_number_is_named(tmp_path: Path):
    text = with_number(INVENTORY, ("nodes", 1, "resources", "total", "GPU"), "1e305").replace("{", "{\n")
    (tmp_path / "i.json").write_text(text)
    done = run_here("inventory", "--inventory", "i.json", env={"HOME": str(tmp_path)}, folder=tmp_path)
    [line] = [at for at, line in enumerate(text.splitlines(), 1) if "1e305" in line]
    assert done.stderr.startswith(f"error: i.json:{line}:8 is damaged: nodes[1].resources.total.GPU: 1e+305 is out of "
                                  "range; expected at most 1024\n")
    assert done.returncode == 1


def stored_documents(parent: type[Stored] = Stored) -> Iterator[type[Stored]]:
    for child in parent.__subclasses__():
        yield child
        yield from stored_documents(child)


def test_each_number_of_a_stored_document_has_a_limit():
    import fleetctl.documents.answers
    import fleetctl.documents.diagnosis
    import fleetctl.documents.difference
    import fleetctl.documents.events
    import fleetctl.documents.plan  # noqa: F401

    checked = 0
    for document in stored_documents():
        document.model_rebuild()
        for number in numbers_of(document.__pydantic_core_schema__):
            checked += 1
            assert number.keys() & {"le", "lt"}, document
            assert number.keys() & {"ge", "gt"}, document
            assert abs(number.get("le", 0)) <= MOST["int"]
    assert checked > 100


def numbers_of(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float"):
            yield schema
        for part in schema.values():
            yield from numbers_of(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from numbers_of(part)
