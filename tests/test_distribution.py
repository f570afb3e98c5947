"""The wheel and the sdist: the same bytes from any checkout, whole, and accepted by the tools of package indexes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def build(folder: Path, umask: int, mtime: int) -> list[Path]:
    """Build from a copy of what git tracks, with a umask and file times of its own."""
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


def test_wheel_and_sdist_are_reproducible_whole_and_accepted(tmp_path: Path):
    first = build(tmp_path / "one", umask=0o022, mtime=1_600_000_000)
    assert digests(build(tmp_path / "two", umask=0o077, mtime=1_700_000_000)) == digests(first)

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
