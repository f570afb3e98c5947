"""The oldest supported Ray: the same in client, agent, package and docs; an older cluster gives a clear error."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.agent.run_messages import Holder
from fleetctl.inventory.dashboard import OLDEST_RAY

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("version", "is_too_old"), [
    ("2.48.1", True), ("2.9.3", True), ("1.13.0", True), ("2.49.0", False), ("2.100.0", False), ("3.0.0.dev0", False),
    ("nightly", False)])
def test_a_cluster_that_is_too_old_is_named_before_anything_is_applied(
        read: Any, dashboard: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        version: str, is_too_old: bool):
    dashboard.bodies["version"]["ray_version"] = version
    inventory = read()
    assert inventory.complete
    assert [text for text in inventory.warnings if "2.49 or later" in text] == (
        [f"the cluster runs Ray {version}; an apply needs 2.49 or later"] if is_too_old else [])

    agent = importlib.import_module("fleetctl.agent.__main__")
    ran = []
    monkeypatch.setattr(agent.ray, "__version__", version)
    monkeypatch.setattr(agent.ray, "init", lambda **_: None)
    monkeypatch.setattr(agent, "hide_package_from_actors", lambda: None)
    monkeypatch.setattr(agent, "wait_for_document", lambda *_: {"job": "j"})
    monkeypatch.setattr(agent, "VERBS", {"apply": (Holder, lambda *_: ran.append("apply") or 0)})
    monkeypatch.setattr("sys.argv", ["agent", "apply", "name", "namespace"])
    assert agent.main() == int(is_too_old)
    assert ran == ([] if is_too_old else ["apply"])
    if is_too_old:
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert last["message"] == f"the cluster runs Ray {version}; fleetctl needs 2.49 or later"


def test_package_agent_and_docs_name_the_same_version():
    oldest = ".".join(map(str, OLDEST_RAY))
    assert importlib.import_module("fleetctl.agent.__main__").OLDEST_RAY == OLDEST_RAY
    assert f'ray = ["ray[default]>={oldest}"]' in (ROOT / "pyproject.toml").read_text()
    assert f"Ray {oldest} or later" in (ROOT / "docs" / "install.md").read_text()
