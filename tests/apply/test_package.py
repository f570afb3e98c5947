"""The packages sent to the cluster: the agent, equal for every run, and documents, which are never unpacked."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from pathlib import Path

import fleetctl.agent
from fleetctl.apply.jobs import AGENT_PACKAGE, agent_package, document

AGENT = Path(fleetctl.agent.__file__).parent


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_ray_recognizes_the_name_as_a_package() -> None:
    name = agent_package().name
    assert name.startswith("_ray_pkg_")
    assert name.endswith(".zip")
    assert name.removeprefix("_ray_pkg_").removesuffix(".zip").isalnum()
    assert agent_package().uri == f"gcs://{name}"


def test_times_and_modes_of_the_local_files_do_not_matter() -> None:
    before = agent_package()
    module = AGENT / "lock.py"
    times = module.stat()
    try:
        os.utime(module, (0, 0))
        agent_package.cache_clear()
        assert agent_package() == before
    finally:
        os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
    with zipfile.ZipFile(io.BytesIO(before.data)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.external_attr >> 16 & 0o777 for entry in archive.infolist()} == {0o644}


def test_only_the_agents_modules_are_in_it() -> None:
    found = contents(agent_package().data)
    assert set(found) == {
        f"{AGENT_PACKAGE}/{path.relative_to(AGENT)}" for path in AGENT.rglob("*") if path.suffix in {".py", ".sh"}}
    assert {f"{AGENT_PACKAGE}/start.sh", f"{AGENT_PACKAGE}/__main__.py", f"{AGENT_PACKAGE}/supervisor.py",
            f"{AGENT_PACKAGE}/weights/serve.py"} <= set(found)
    assert found[f"{AGENT_PACKAGE}/lock.py"] == (AGENT / "lock.py").read_bytes()


def test_a_document_is_read_back_as_it_was() -> None:
    sent = document("x-request", {"plan": "\N{SNOWMAN}"})
    assert sent.name == "x-request"
    assert json.loads(zlib.decompress(sent.data)) == {"plan": "\N{SNOWMAN}"}
