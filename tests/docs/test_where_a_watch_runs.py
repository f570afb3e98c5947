"""The systemd unit of docs/watch.md and the Deployment of docs/kubernetes.md: both start a watch."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli import watch
from fleetctl.cli.entry import run
from tests.external_programs import needed

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGE_OF = {"watch.md": "ini", "kubernetes.md": "yaml"}


def example(page: str) -> str:
    """The first example of a page in its language."""
    found = re.search(rf"^```{LANGUAGE_OF[page]}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def deployment() -> Any:
    [container] = yaml.safe_load(example("kubernetes.md"))["spec"]["template"]["spec"]["containers"]
    return container


def port_of_watch(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> str:
    """Parse the arguments of a watch without starting its loop; return the port."""
    listens: list[str] = []
    monkeypatch.setattr(watch, "_loop", lambda *_: None)
    monkeypatch.setattr(watch, "serving", lambda _, listen, *__: nullcontext(listens.append(listen)))
    assert run(arguments) == 0, arguments
    return listens[0].rpartition(":")[2]


@pytest.mark.slow
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = needed("FLEETCTL_SYSTEMD_ANALYZE", "systemd-analyze", "install Debian's package `systemd`", in_ci=False)
    unit = tmp_path / "fleetctl-watch.service"
    unit.write_text(example("watch.md").replace("/usr/local/bin/fleetctl", sys.executable))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_watch_accepts_the_flags_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"^ExecStart=\S+ (.*)$", example("watch.md"), re.MULTILINE)
    port_of_watch(monkeypatch, shlex.split(command))


def test_watch_accepts_the_flags_of_the_deployment_and_listens_on_its_port(
    monkeypatch: pytest.MonkeyPatch, deployment: Any
) -> None:
    port = port_of_watch(monkeypatch, deployment["args"])
    assert {deployment[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {int(port)}
    assert f'prometheus.io/port: "{port}"' in example("kubernetes.md")
    known = (DOCS / "environment.md").read_text()
    assert all(one["name"] in known for one in deployment["env"])
