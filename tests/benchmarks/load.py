"""How long loading a fleet takes: `python -m tests.benchmarks.load --models 1000 --json`.

Generates a fleet of one file, loads it several times and prints the time of each part. With --json the last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from fleetctl.fleetfile.compose import compose
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: benchmark}\nspec:\n  models:\n"
MODEL = """\
  - key: org/model-%d
    replicas: 3
    priority: 100
    restart: {max: 5, backoff: 10s}
    workers:
    - name: main
      members:
      - role: Standalone
        resources: {gpus: 1, vram: 16Gi, cpus: 2, memory: 8Gi}
        nodeSelector: {ray.io/accelerator-type: "in(L4, A10G)"}
        engine:
          command: [vllm, serve, openai-community/gpt2]
          args: [--port, $(FLEETCTL_PORT), --max-model-len, "4096", --dtype, bfloat16]
          env: {HF_HUB_OFFLINE: "1", HF_TOKEN: {fromNode: HF_TOKEN}}
          readiness: {http: {path: /health}}
          liveness: {http: {path: /health}}
"""


def fleet_text(models: int) -> str:
    """A fleet file of `models` models like those of the documentation."""
    return HEAD + "".join(MODEL % number for number in range(models))


def seconds(run: Callable[[], object], rounds: int) -> list[float]:
    """The wall-clock seconds of each round, after a warm-up."""
    run()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return taken


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    text = fleet_text(flags.models)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(text)
        source = decode(SourceBytes(str(path), text.encode()))
        assert isinstance(source, SourceText)
        results = {
            "compose": seconds(lambda: compose(source), flags.rounds),
            "load": seconds(lambda: load_fleet([str(path)]), flags.rounds),
        }
    for name, taken in results.items():
        print(f"{name:8} {statistics.mean(taken):.3f} s  sd {statistics.stdev(taken):.3f} s")
    if flags.json:
        print(json.dumps({
            "benchmark": "load", "models": flags.models, "bytes": len(text), "rounds": flags.rounds,
            "machine": machine_text(),
            "versions": {"fleetctl": __version__, "python": platform.python_version(),
                         "pydantic": version("pydantic"), "PyYAML": version("PyYAML")},
            **{name: {"mean": round(statistics.mean(taken), 4), "sd": round(statistics.stdev(taken), 4)}
               for name, taken in results.items()},
        }))


if __name__ == "__main__":
    main()
