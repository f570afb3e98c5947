"""The package of a run: equal content gives an equal name, and nothing is in it but the agent and what it is asked."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import fleetctl.agent
from fleetctl.apply.package import AGENT_PACKAGE, REQUEST_FILE, job_package

AGENT = Path(fleetctl.agent.__file__).parent


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_equal_requests_give_equal_packages_whatever_the_order_of_keys() -> None:
    first, second = job_package({"a": 1, "b": {"c": 2, "d": 3}}), job_package({"b": {"d": 3, "c": 2}, "a": 1})
    assert first == second
    assert first.uri == f"gcs://{first.name}"


def test_another_request_is_another_package() -> None:
    assert job_package({"a": 1}).name != job_package({"a": 2}).name


def test_the_name_is_one_that_ray_takes_for_a_package() -> None:
    name = job_package({}).name
    assert name.startswith("_ray_pkg_")
    assert name.endswith(".zip")
    assert name.removeprefix("_ray_pkg_").removesuffix(".zip").isalnum()


def test_the_time_and_rights_of_the_files_here_do_not_matter() -> None:
    before = job_package({})
    module = AGENT / "turns.py"
    times = module.stat()
    try:
        os.utime(module, (0, 0))
        assert job_package({}) == before
    finally:
        os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
    with zipfile.ZipFile(io.BytesIO(before.data)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.external_attr >> 16 & 0o777 for entry in archive.infolist()} == {0o644}


def test_only_the_agents_modules_and_the_request_are_in_it() -> None:
    found = contents(job_package({"plan": "\N{SNOWMAN}"}).data)
    shipped = {f"{AGENT_PACKAGE}/{path.name}" for path in AGENT.iterdir() if path.suffix in {".py", ".sh"}}
    assert set(found) == shipped | {REQUEST_FILE}
    assert {f"{AGENT_PACKAGE}/start.sh", f"{AGENT_PACKAGE}/__main__.py", f"{AGENT_PACKAGE}/supervisor.py"} <= set(found)
    assert json.loads(found[REQUEST_FILE]) == {"plan": "\N{SNOWMAN}"}
    assert found[f"{AGENT_PACKAGE}/turns.py"] == (AGENT / "turns.py").read_bytes()
