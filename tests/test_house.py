"""The project as a whole: pinned requirements that any index can serve, a complete Makefile, words with one meaning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(r"^([a-z0-9._-]+)==[^ ]+( ; [^\\]+)? \\$")


def names_in(path: Path) -> set[str]:
    return {match[1] for line in path.read_text().splitlines() if (match := PINNED.match(line))}


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {re.split(r"[\[<>=~! ]", line)[0].lower().replace("_", "-").replace(".", "-") for line in wanted}


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_by_hash_and_names_no_index(path: Path) -> None:
    for line in path.read_text().splitlines():
        assert line.startswith(("    --hash=sha256:", "#", "    #")) or PINNED.match(line), line
        assert "://" not in line


def test_the_pinned_files_contain_every_declared_requirement() -> None:
    assert declared() <= names_in(ROOT / "requirements" / "runtime.txt")
    assert declared("ray", "mcp", "dev") <= names_in(ROOT / "requirements" / "dev.txt")
    assert {"ray", "mcp"} & names_in(ROOT / "requirements" / "runtime.txt") == set()


def test_ci_runs_the_commands_of_the_readme() -> None:
    ci = ROOT / ".ci" / "run"
    assert ci.stat().st_mode & 0o111
    for command in ("make lint", "make test"):
        assert command in ci.read_text()
        assert command in (ROOT / "README.md").read_text()


def test_make_help_lists_every_documented_target() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "demo", "test", "test-fast", "lint", "bench", "schemas", "clean"):
        assert f"make {target} " in listed


def test_the_makefile_runs_every_ray_test_exactly_once() -> None:
    named = [name for line in re.findall(r"\$\(RAY\) (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
             for name in line.split()]
    run = [path for name in named for found in ROOT.glob(name)
           for path in (found.rglob("test_*.py") if found.is_dir() else [found])]
    assert len(run) == len(set(run))
    marked = {path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)
              if "pytestmark = pytest.mark.ray" in path.read_text() or "@pytest.mark.ray" in path.read_text()}
    assert marked - set(run) == set()


ONE_MEANING = {
    "world": (),  # a question is asked of a scenario
    "verdict": ("render/report/of_plan.py", "render/report/model.py"),  # of a policy; a report has a conclusion
}
"""Words that had several meanings, and where the one remaining meaning may be used."""


@pytest.mark.parametrize("word", ONE_MEANING)
def test_a_word_has_one_meaning(word: str) -> None:
    files = [path.relative_to(ROOT / "fleetctl").as_posix() for path in (ROOT / "fleetctl").rglob("*.py")
             if re.search(rf"\b{word}s?\b", path.read_text(), re.IGNORECASE)]
    assert [path for path in files if not path.startswith(ONE_MEANING[word])] == []


def test_host_and_port_become_one_text_in_functions_that_know_ipv6() -> None:
    joined = re.compile(r"\{[^{}]*\b(?:\w*_)?(?:host|address|ip)\}:\{[^{}]*port\b")
    found = {path.relative_to(ROOT / "fleetctl").as_posix() for path in (ROOT / "fleetctl").rglob("*.py")
             if joined.search(path.read_text())}
    assert found == {"agent/ports.py", "documents/inventory.py", "demo/stub_engine.py"}


def test_no_example_joins_an_address_and_a_port_by_itself_or_listens_on_ipv4_alone() -> None:
    pages = [path for pattern in ("fleets/**/*.yaml", "docs/*.md", "README.md") for path in ROOT.glob(pattern)]
    wrong = re.compile(r"(?:ADDRESS|HOST)\)\]?:\$\(|--host(?:name)?,? 0\.0\.0\.0")
    assert {path.name for path in pages if wrong.search(path.read_text())} == set()


def test_no_annotation_is_one_that_python_3_10_cannot_evaluate() -> None:
    """There a bare ClassVar in a model, whose annotations are text, ends the import of every command."""
    bare = re.compile(r":\s*ClassVar\s*(?:=|$)", re.MULTILINE)
    assert [path.name for path in (ROOT / "fleetctl").rglob("*.py") if bare.search(path.read_text())] == []
