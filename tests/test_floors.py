"""Holds the floors of the code (docs and CONTRIBUTING draw them): lower folders never import higher ones."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fleetctl"

FLOORS = {
    "fleetctl": 0, "fleetctl.version": 0, "fleetctl.collector": 0, "fleetctl.errors": 1, "fleetctl.documents": 2,
    "fleetctl.spec": 3,
    "fleetctl.planner.placement": 4, "fleetctl.planner": 5, "fleetctl.inventory": 6, "fleetctl.review": 7,
    "fleetctl.watch": 7, "fleetctl.importers": 7, "fleetctl.forge": 7, "fleetctl.apply": 7, "fleetctl.demo": 7,
    "fleetctl.render": 8, "fleetctl.cli": 9, "fleetctl.__main__": 10,
}
TYPE_ONLY = {("fleetctl.errors", "fleetctl.spec.problems")}  # a FleetFileError is annotated with what it carries
IMPURE = {
    "asyncio", "datetime", "http", "httpx", "io", "logging", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "shutil", "socket", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    type_only: bool


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and behind TYPE_CHECKING included; relative ones made absolute."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typed = {id(child) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
             for child in ast.walk(node)}
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in typed)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            target = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                full = f"{target}.{alias.name}"
                place = ROOT / Path(*full.split("."))
                is_module = place.is_dir() or place.with_name(f"{place.name}.py").exists()
                yield Import(full if is_module else target, node.lineno, id(node) in typed)


def floor(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (found := FLOORS.get(".".join(parts[:length]))) is not None and (length > 1 or len(parts) == 1):
            return found
    raise AssertionError(f"{module} stands on no floor: give it one in FLOORS and in the map of the code")


CLIENT = [path for path in sources(PACKAGE) if (PACKAGE / "agent") not in path.parents]


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_lower_floors_never_import_higher_ones(path: Path) -> None:
    here = module_name(path)
    up = [
        f"line {found.line}: {found.module}" for found in imports(path)
        if found.module.split(".")[0] == "fleetctl" and floor(found.module) > floor(here)
        and not (found.type_only and (here, found.module) in TYPE_ONLY)
    ]
    assert not up, f"{here} reaches up to {up}"


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_client_imports_ray_nowhere_but_in_the_demo(path: Path) -> None:
    found = [found.line for found in imports(path) if found.module.split(".")[0] == "ray"]
    assert not found or (PACKAGE / "demo") in path.parents


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_in_the_client_imports_the_agent(path: Path) -> None:
    assert not [found.line for found in imports(path) if found.module.startswith("fleetctl.agent")]


def test_the_planner_does_no_input_or_output_and_knows_no_clock_and_no_chance() -> None:
    impure = []
    for path in sources(PACKAGE / "planner"):
        impure += [f"{path.name}:{found.line} imports {found.module}" for found in imports(path)
                   if found.module.split(".")[0] in IMPURE]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        impure += [f"{path.name}:{node.lineno} calls {node.func.id}" for node in ast.walk(tree)
                   if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS]
    assert impure == []


@pytest.mark.parametrize("path", sources(PACKAGE / "agent"), ids=lambda path: path.name)
def test_the_agent_imports_only_the_standard_library_ray_and_itself(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "ray", "fleetctl_agent"}
    foreign = [f"line {found.line}: {found.module}" for found in imports(path)
               if found.module.split(".")[0] not in allowed and not found.module.startswith("fleetctl.agent")]
    assert foreign == []


@pytest.mark.parametrize("path", sources(PACKAGE / "agent"), ids=lambda path: path.name)
def test_the_agent_names_itself_only_relatively(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    absolute = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                and not node.level and (node.module or "").split(".")[0] == "fleetctl"]
    assert absolute == []


def test_rendering_knows_no_command_line_and_no_cluster() -> None:
    found = [f"{path.name}: {found.module}" for path in sources(PACKAGE / "render") for found in imports(path)
             if found.module.split(".")[0] in {"typer", "click", "ray", "httpx", "os", "subprocess"}]
    assert found == []


def test_only_the_command_line_reads_the_environment_and_the_clock() -> None:
    """Time and environment come in as arguments; waiting and measuring are not reading the time of day."""
    readers = []
    for path in CLIENT:
        if (PACKAGE / "cli") in path.parents or (PACKAGE / "demo") in path.parents:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                if name in {"os.environ", "os.getenv", "time.time", "datetime.now", "datetime.utcnow", "Path.home"}:
                    readers.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {name}")
    assert readers == []


def modules_after(code: str, *arguments: str) -> set[str]:
    """The modules a fresh interpreter has loaded when `code` has run."""
    program = f"import sys, atexit\natexit.register(lambda: print('\\nMODULES', *sys.modules, file=sys.stderr))\n{code}"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60,
                          check=False)
    line = next(line for line in reversed(done.stderr.splitlines()) if line.startswith("MODULES"))
    return {name.split(".")[0] for name in line.split()[1:]}


def test_version_imports_nothing_slow() -> None:
    loaded = modules_after("from fleetctl.cli.entry import main\nmain()", "--version")
    assert "fleetctl" in loaded
    assert loaded & {"pydantic", "ray", "deepdiff", "rich", "typer", "click", "yaml", "httpx", "numpy"} == set()


def test_help_and_completion_import_nothing_slow_but_typer() -> None:
    loaded = modules_after("from fleetctl.cli.entry import main\nmain()", "--help")
    assert "typer" in loaded
    assert loaded & {"pydantic", "ray", "deepdiff", "rich", "yaml", "ruamel", "httpx", "numpy", "jsonschema"} == set()


def test_planning_on_a_snapshot_imports_neither_ray_nor_what_it_does_not_need(
    fleet_file: Path, snapshot_file: Path
) -> None:
    code = "from fleetctl.cli.entry import main\nmain()"
    loaded = modules_after(code, "plan", "-f", str(fleet_file), "--inventory", str(snapshot_file))
    assert "pydantic" in loaded
    assert loaded & {"ray", "deepdiff", "ruamel", "jsonschema", "scipy"} == set()
