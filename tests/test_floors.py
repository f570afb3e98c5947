"""The floors of the code (drawn in docs and CONTRIBUTING): lower folders never import higher folders."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from source_code import PACKAGE, ROOT, listed, nodes_of, place, sources

from fleetctl.cli.app import COMMANDS

FLOORS = {
    "fleetctl": 0, "fleetctl.version": 0, "fleetctl.collector": 0, "fleetctl.problem": 0, "fleetctl.errors": 1,
    "fleetctl.agent.weights": 0, "fleetctl.child": 0, "fleetctl.silence": 0,
    "fleetctl.documents": 2, "fleetctl.sizing": 2, "fleetctl.fleetfile": 3,
    "fleetctl.planner.placement": 4, "fleetctl.planner": 5, "fleetctl.inventory": 6, "fleetctl.review": 7,
    "fleetctl.importers": 7, "fleetctl.forge": 7, "fleetctl.apply": 7, "fleetctl.demo": 7,
    "fleetctl.doctor": 8, "fleetctl.render": 8, "fleetctl.workflow": 9, "fleetctl.watch": 10, "fleetctl.cli": 11,
    "fleetctl.__main__": 12,
}
IMPURE = {
    "asyncio", "datetime", "http", "httpx", "io", "logging", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "shutil", "socket", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}


@dataclass(frozen=True)
class Import:
    module: str
    line: int


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import of a file, including those inside functions and under TYPE_CHECKING, with absolute names."""
    found = []
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            target = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                full = f"{target}.{alias.name}"
                found.append(Import(full if is_module(full) else target, node.lineno))
    return tuple(found)


@cache
def is_module(name: str) -> bool:
    where = ROOT / Path(*name.split("."))
    return where.is_dir() or where.with_name(f"{where.name}.py").exists()


def floor(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (found := FLOORS.get(".".join(parts[:length]))) is not None and (length > 1 or len(parts) == 1):
            return found
    raise AssertionError(f"{module} has no floor: add it to FLOORS and to the map of the code")


CLIENT = [path for path in sources() if (PACKAGE / "agent") not in path.parents]
AGENT = sources(PACKAGE / "agent")


def imported(paths: Iterable[Path], forbidden: Callable[[Path, Import], bool]) -> list[str]:
    """The forbidden imports of these files, each with its place."""
    return [f"{place(path, found.line)} imports {found.module}" for path in paths for found in imports(path)
            if forbidden(path, found)]


def top(found: Import) -> str:
    return found.module.split(".")[0]


def test_lower_floors_never_import_higher_ones() -> None:
    def reaches_up(path: Path, found: Import) -> bool:
        own_name = module_name(path)
        return top(found) == "fleetctl" and floor(found.module) > floor(own_name)

    up = imported(CLIENT, reaches_up)
    assert not up, listed("a lower floor reaches up to a higher one", up)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports only for types count, too: a cycle of concepts is a cycle, whatever happens at run time."""
    graph = {module_name(path): {found.module for found in imports(path) if found.module != module_name(path)}
             for path in sources()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_every_file_of_the_client_has_a_floor_and_every_floor_exists() -> None:
    assert min(floor(module_name(path)) for path in CLIENT) == 0
    assert [name for name in FLOORS if not is_module(name)] == []


def test_the_client_imports_ray_only_in_the_demo() -> None:
    found = imported(CLIENT, lambda path, one: top(one) == "ray" and (PACKAGE / "demo") not in path.parents)
    assert not found, listed("the client needs no ray", found)


def test_the_client_shares_with_the_agent_only_the_ids_of_weights_and_the_choice_of_a_proxy() -> None:
    shared = {f"fleetctl.agent.weights.{name}" for name in ("index", "views", "proxy")}
    found = imported(CLIENT, lambda _, one: one.module.startswith("fleetctl.agent") and one.module not in shared)
    assert not found, listed("the client ships the agent, and never runs it", found)
    assert "ray" not in modules_after("import fleetctl.agent.weights.index, fleetctl.agent.weights.views, "
                                       "fleetctl.agent.weights.proxy")


def test_the_planner_does_no_input_or_output_and_uses_no_clock_and_no_randomness() -> None:
    planner = sources(PACKAGE / "planner")
    impure = imported(planner, lambda _, one: top(one) in IMPURE)
    impure += [f"{place(path, node.lineno)} calls {node.func.id}" for path in planner for node in nodes_of(path)
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS]
    assert not impure, listed("the planner is pure", impure)


def test_the_agent_imports_only_the_standard_library_ray_and_itself() -> None:
    allowed = {*sys.stdlib_module_names, "ray", "fleetctl_agent"}
    foreign = imported(AGENT, lambda _, one: top(one) not in allowed and not one.module.startswith("fleetctl.agent"))
    assert not foreign, listed("nothing is installed in the cluster for the agent", foreign)


def test_the_agent_imports_itself_only_relatively() -> None:
    absolute = [f"{place(path, node.lineno)} imports from {node.module}" for path in AGENT for node in nodes_of(path)
                if isinstance(node, ast.ImportFrom) and not node.level
                and (node.module or "").split(".")[0] == "fleetctl"]
    assert not absolute, listed("in the cluster the agent has another name", absolute)


def test_rendering_imports_no_command_line_and_no_cluster_client() -> None:
    found = imported(sources(PACKAGE / "render"),
                     lambda _, one: top(one) in {"typer", "click", "ray", "httpx", "os", "subprocess"})
    assert not found, listed("rendering knows only documents", found)


def test_code_shared_by_commands_imports_no_command_line() -> None:
    found = imported(sources(PACKAGE / "workflow"), lambda _, one: top(one) in {"typer", "click"})
    assert not found, listed("a workflow is a function of its arguments", found)


def test_only_the_command_line_reads_the_environment_and_the_clock() -> None:
    """Time and environment are arguments; waiting and measuring durations do not read the time of day."""
    forbidden_names = {"os.environ", "os.getenv", "time.time", "datetime.now", "datetime.utcnow", "Path.home"}
    readers = []
    for path in CLIENT:
        if (PACKAGE / "cli") in path.parents or (PACKAGE / "demo") in path.parents:
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                if name in forbidden_names:
                    readers.append(f"{place(path, node.lineno)} {name}")
    assert not readers, listed("time and environment come in as arguments", readers)


@pytest.mark.parametrize(("source", "module"), [
    ("import ray", "ray"), ("def f():\n import ray.util", "ray.util"), ("from ray import kill", "ray"),
    ("from fleetctl.planner import plan", "fleetctl.planner.plan"), ("from .. import errors", "fleetctl.errors"),
    ("from ..render.visible import MASK", "fleetctl.render.visible"),
    ("from . import visible", "fleetctl.render.visible"),
    ("if TYPE_CHECKING:\n import fleetctl.cli.plan", "fleetctl.cli.plan"),
])
def test_an_import_is_found_however_it_is_written(source: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PACKAGE / "render" / "not_there.py"
    monkeypatch.setattr("test_floors.nodes_of", lambda _: tuple(ast.walk(ast.parse(source))))
    assert module in [found.module for found in imports.__wrapped__(path)]


def modules_after(code: str, *arguments: str) -> set[str]:
    """The modules and packages that a fresh interpreter has loaded after `code` has run."""
    program = f"import sys, atexit\natexit.register(lambda: print('\\nMODULES', *sys.modules, file=sys.stderr))\n{code}"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300,
                          check=False)
    line = next(line for line in reversed(done.stderr.splitlines()) if line.startswith("MODULES"))
    return {part for name in line.split()[1:] for part in (name, name.split(".")[0])}


def test_the_version_option_imports_nothing_slow() -> None:
    loaded = modules_after("from fleetctl.cli.entry import main\nmain()", "--version")
    assert "fleetctl" in loaded
    assert loaded & {"pydantic", "ray", "deepdiff", "rich", "typer", "click", "yaml", "httpx", "numpy"} == set()


def test_help_and_completion_import_nothing_slow_except_typer() -> None:
    loaded = modules_after("from fleetctl.cli.entry import main\nmain()", "--help")
    assert "typer" in loaded
    assert loaded & {"pydantic", "ray", "deepdiff", "rich", "yaml", "httpx", "numpy", "jsonschema"} == set()
    assert loaded & {f"fleetctl.cli.{one.module}" for one in COMMANDS.values()} == set()


@pytest.mark.parametrize("command", ["capacity", "prefetch", "prune"])
def test_the_help_of_a_command_that_computes_with_arrays_imports_no_numpy(command: str) -> None:
    assert "numpy" not in modules_after("from fleetctl.cli.entry import main\nmain()", command, "--help")


def test_planning_on_a_snapshot_imports_neither_ray_nor_other_unneeded_modules(
    fleet_file: Path, snapshot_file: Path
) -> None:
    code = "from fleetctl.cli.entry import main\nmain()"
    loaded = modules_after(code, "plan", "-f", str(fleet_file), "--inventory", str(snapshot_file))
    assert "pydantic" in loaded
    assert loaded & {"ray", "deepdiff", "jsonschema", "scipy", "httpx"} == set()
    for unneeded in ("inventory.client", "inventory.dashboard", "apply.history", "review.compare"):
        assert f"fleetctl.{unneeded}" not in loaded


def test_status_imports_no_plan_and_no_planner(fleet_file: Path, snapshot_file: Path) -> None:
    code = "from fleetctl.cli.entry import main\nmain()"
    loaded = modules_after(code, "status", "-f", str(fleet_file), "--inventory", str(snapshot_file))
    assert "fleetctl.planner.live" in loaded
    assert loaded & {"ray", "numpy", "scipy", "deepdiff", "fleetctl.documents.plan", "fleetctl.planner.cold",
                     "fleetctl.inventory.autoscaler"} == set()


@pytest.mark.parametrize("command", [("validate", "-f"), ("fmt", "--check")])
def test_reading_and_formatting_import_no_writer_of_yaml(command: tuple[str, ...], fleet_file: Path) -> None:
    loaded = modules_after("from fleetctl.cli.entry import main\nmain()", *command, str(fleet_file))
    assert "yaml" in loaded
    assert ("fleetctl.fleetfile.layout" in loaded) == (command[0] == "fmt")
