"""Wheel, sdist and SBOM: identical from any checkout, complete, and accepted by the tools of package indexes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from offline_python import OFFLINE, offline_python

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def build(folder: Path, umask: int, mtime: int) -> list[Path]:
    """Build from a copy of the files tracked by git, with the given umask and file times."""
    source = folder / "checkout"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
            os.utime(source / name, (mtime, mtime))
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "--old-file=setup", "dist", f"BIN={Path(sys.executable).parent}"], cwd=source, check=True,
                   env={**outside, "SOURCE_DATE_EPOCH": "1700000000"}, capture_output=True, umask=umask)
    return sorted((source / "dist").iterdir())


def digests(files: list[Path]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("one"), umask=0o022, mtime=1_600_000_000)


def test_wheel_and_sdist_are_reproducible_complete_and_accepted(first: list[Path], tmp_path: Path) -> None:
    assert digests(build(tmp_path, umask=0o077, mtime=1_700_000_000)) == digests(first)

    sdist, _, wheel = files = sorted(first, key=lambda file: file.suffix)
    assert [file.suffix for file in files] == [".gz", ".json", ".whl"]
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "fleetctl").rglob("*.py")}
    assert modules <= packed
    assert "fleetctl/demo/fleet.yaml" in packed
    assert not [name for name in packed if name.startswith("tests/")]

    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)],
                             check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert checked.returncode == 0, checked.stdout
    assert "warning" not in checked.stdout.lower()


def test_the_sbom_lists_the_pinned_requirements_with_their_hashes_and_users(first: list[Path]) -> None:
    [document] = [json.loads(file.read_text()) for file in first if file.suffix == ".json"]
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    own = document["metadata"]["component"]
    assert own["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert own["purl"] == f"pkg:pypi/fleetctl@{own['version']}"

    text = (ROOT / "requirements" / "runtime.txt").read_text()
    pinned = re.findall(r"^([a-z0-9.-]+)==([^ ;\\]+)", text, re.MULTILINE)
    listed = document["components"]
    assert [(one["name"], one["version"]) for one in listed] == pinned
    assert len({one["purl"] for one in listed}) == len(listed) == len(document["dependencies"]) - 1
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@[^@]+", one["purl"]) for one in listed)
    assert [one["content"] for row in listed for one in row["hashes"]] == re.findall("sha256:([0-9a-f]{64})", text)
    on = {row["ref"].partition("@")[0]: row["dependsOn"] for row in document["dependencies"]}
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[0]
    declared = set(re.findall(r'^  "([a-zA-Z0-9._-]+)>=', project, re.MULTILINE))
    assert {one.partition("@")[0] for one in on["pkg:pypi/fleetctl"]} == {
        f"pkg:pypi/{name.lower().replace('.', '-')}" for name in declared}
    assert any(one.startswith("pkg:pypi/httpcore@") for one in on["pkg:pypi/httpx"])


def test_the_wheel_installs_the_command_in_a_separate_environment(first: list[Path], tmp_path: Path) -> None:
    """As `pipx install .` and `uv tool install .` do."""
    [wheel] = [file for file in first if file.suffix == ".whl"]
    own = tmp_path / "own"

    def run(program: str, *words: str | Path) -> str:
        return subprocess.run([own / "bin" / program, *words], cwd=tmp_path, check=True, capture_output=True, text=True,
                              env={**os.environ, **OFFLINE}).stdout

    subprocess.run([offline_python(tmp_path / "bin") / "python", "-I", "-m", "venv", own], check=True)
    run("python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel)
    assert run("fleetctl", "--version").startswith(f"fleetctl {wheel.name.split('-')[1]} ")
    assert Path(run("python", "-c", "import fleetctl; print(fleetctl.__file__)")).is_relative_to(own)
    run("fleetctl", "init", "--model", "org/a-1B")
    run("fleetctl", "validate", "fleet.yaml")
