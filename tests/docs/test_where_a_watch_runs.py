"""The systemd unit of docs/watch.md and the Deployment of docs/kubernetes.md: both begin a watch as they say."""

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
    """Return the first example of a page in its language."""
    found = re.search(rf"^```{LANGUAGE_OF[page]}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def deployment() -> Any:
    [container] = yaml.safe_load(example("kubernetes.md"))["spec"]["template"]["spec"]["containers"]
    return container


def accepted(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> str:
    """Run a watch that does not begin; return where it listens."""
    listens: list[str] = []
    monkeypatch.setattr(watch, "_loop", lambda *_: None)
    monkeypatch.setattr(watch, "serving", lambda _, listen, __: nullcontext(listens.append(listen)))
    assert run(arguments) == 0, arguments
    return listens[0].rpartition(":")[2]


@pytest.mark.slow
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = needed("FLEETCTL_SYSTEMD_ANALYZE", "systemd-analyze", "install Debian's package `systemd`", in_ci=False)
    unit = tmp_path / "fleetctl-watch.service"
    unit.write_text(example("watch.md").replace("/usr/local/bin/fleetctl", sys.executable))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_watch_takes_the_flags_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"^ExecStart=\S+ (.*)$", example("watch.md"), re.MULTILINE)
    accepted(monkeypatch, shlex.split(command))


def test_watch_takes_the_flags_of_the_deployment_and_listens_where_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, deployment: Any
) -> None:
    port = accepted(monkeypatch, deployment["args"])
    assert {deployment[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {int(port)}
    assert f'prometheus.io/port: "{port}"' in example("kubernetes.md")
    known = (DOCS / "environment.md").read_text()
    assert all(one["name"] in known for one in deployment["env"])
