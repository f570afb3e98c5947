"""The wheel and the sdist: identical from any checkout, complete, and accepted by the tools of package indexes."""

from __future__ import annotations

import hashlib
import os
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
    source, out = folder / "checkout", folder / "dist"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
            os.utime(source / name, (mtime, mtime))
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source], check=True,
                   capture_output=True, umask=umask)
    return sorted(out.iterdir())


def digests(files: list[Path]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("one"), umask=0o022, mtime=1_600_000_000)


def test_wheel_and_sdist_are_reproducible_complete_and_accepted(first: list[Path], tmp_path: Path) -> None:
    assert digests(build(tmp_path, umask=0o077, mtime=1_700_000_000)) == digests(first)

    sdist, wheel = sorted(first, key=lambda file: file.suffix)
    assert (sdist.suffix, wheel.suffix) == (".gz", ".whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "fleetctl").rglob("*.py")}
    assert modules <= packed
    assert "fleetctl/demo/fleet.yaml" in packed
    assert not [name for name in packed if name.startswith("tests/")]

    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, first)],
                             check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert checked.returncode == 0, checked.stdout
    assert "warning" not in checked.stdout.lower()


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
