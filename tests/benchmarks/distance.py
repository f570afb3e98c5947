"""How much code a run passes through: `python -m tests.benchmarks.distance --json`.

Runs a small plan, a plan with a gang and a blocked replica, `status` and `validate`, each in a process of its own under
a profiler that sees all threads. Counted are functions with a name, and bodies of classes, which run when their module
is imported; and the files that these are in. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fleetctl
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text

PACKAGE = Path(fleetctl.__file__).parent
TRACED = """
import json, os, sys, threading
import fleetctl
root = os.path.dirname(fleetctl.__file__) + os.sep
seen = set()
def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
        is_class = code.co_flags & 0x3 == 0
        seen.add((code.co_filename, code.co_firstlineno, is_class))
from fleetctl.__main__ import main
threading.setprofile(profile); sys.setprofile(profile)
try:
    exit_code = main()
except SystemExit as end:
    exit_code = end.code
sys.setprofile(None)
print(json.dumps({"exitCode": exit_code, "files": len({file for file, *_ in seen}),
                  "functions": sum(not is_class for *_, is_class in seen),
                  "classes": sum(is_class for *_, is_class in seen)}), file=sys.stderr)
"""
MEMBER = {"resources": {"gpus": 1, "vram": "20Gi"}, "engine": {"command": ["serve"]}}
LARGE = {"resources": {"gpus": 8, "vram": "70Gi"}, "engine": {"command": ["serve"]}}


def main() -> None:
    """Print a line for each run, and the size of the package."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.distance", description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": machine_text(), "fleetctl": __version__, "runs": runs(Path(folder)), "package": size()}
    for name, row in found["runs"].items():
        print(f"{name:26} {row['functions']:4} functions, {row['classes']:4} classes, in {row['files']} files")
    if options.json:
        print(json.dumps(found))


def runs(folder: Path) -> dict[str, dict[str, int]]:
    """Return what each run passed through."""
    few, more, lab = folder / "few.yaml", folder / "more.yaml", folder / "lab.json"
    models: list[dict[str, Any]] = [model("a/one", 2, MEMBER), model("a/two", 1, MEMBER)]
    few.write_text(json.dumps(fleet(models)))
    gang = [{**LARGE, "role": "Leader"}, {**LARGE, "role": "Worker", "count": 2}]
    more.write_text(json.dumps(fleet([*models, model("a/gang", 1, *gang), model("a/blocked", 4, LARGE)])))
    lab.write_text(subprocess.run(
        [sys.executable, "-m", "fleetctl", "inventory", "--add-node", "8xH100 x6", "--format", "json"],
        capture_output=True, text=True, check=True).stdout)
    commands = {"plan": ["plan", "-f", few, "--inventory", lab],
                "plan, a gang and blocked": ["plan", "-f", more, "--inventory", lab],
                "status": ["status", "--inventory", lab], "validate": ["validate", "-f", few]}
    return {name: traced([str(word) for word in words]) for name, words in commands.items()}


def traced(words: list[str]) -> dict[str, int]:
    """Run a command under the profiler."""
    done = subprocess.run([sys.executable, "-c", TRACED, *words], capture_output=True, text=True, check=False)
    found: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    return found


def fleet(models: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a fleet file."""
    return {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "demo"}, "spec": {"models": models}}


def model(key: str, replicas: int, *members: dict[str, Any]) -> dict[str, Any]:
    """Return a model with one group."""
    return {"key": key, "replicas": replicas, "workers": [{"name": "main", "members": list(members)}]}


def size() -> dict[str, int]:
    """Return the files of the package, its statements, and the pairs of modules of which one imports the other."""
    files = {".".join(["fleetctl", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__"): path
             for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    pairs = set[tuple[str, str]]()
    for name, tree in trees.items():
        package = name if files[name].name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                parts = package.split(".")
                above = ".".join(parts[:len(parts) - node.level + 1]) if node.level else ""
                base = ".".join(filter(None, (above, node.module)))
                targets = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names]
                pairs |= {(name, target) for target in targets if target in files and target != name}
            elif isinstance(node, ast.Import):
                pairs |= {(name, alias.name) for alias in node.names if alias.name in files}
    return {"files": len(files), "imports": len(pairs), "statements": sum(
        isinstance(node, ast.stmt) for tree in trees.values() for node in ast.walk(tree))}


if __name__ == "__main__":
    main()
