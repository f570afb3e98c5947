"""`weights index`: the lines it prints for a fleet file, and the folders it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_result import Cli

from fleetctl.agent.weights import index as weights_index
from fleetctl.cli import weights as command

NAME = "fleetctl-weights.json"
FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: m
    replicas: 1
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine: {command: [serve, $(FLEETCTL_MODEL_DIR)]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m" / "sub").mkdir(parents=True)
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "sub" / "model.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "m" / ".cache").mkdir()
    (tmp_path / "m" / ".cache" / "lock").write_text("")
    return tmp_path / "m"


def test_index_prints_lines_for_a_fleet_file_with_the_same_name_for_the_same_files(cli: Cli, folder: Path) -> None:
    done = cli("weights", "index", str(folder))
    assert done.code == 0
    assert "indexed: 2 files" in done.err
    assert [row["path"] for row in json.loads((folder / NAME).read_text())["files"]] == [
        "config.json", "sub/model.safetensors"]
    lines = "".join(f"        {line}\n" for line in done.out.splitlines())
    file = folder.parent / "fleet.yaml"
    file.write_text(FLEET.replace("        engine", f"{lines}        engine"))
    assert cli("validate", "-f", str(file)).code == 0
    assert cli("weights", "index", str(folder)).out == done.out
    (folder / "config.json").write_text("[]")
    assert cli("weights", "index", str(folder)).out != done.out


def test_a_link_to_outside_the_folder_is_refused(cli: Cli, folder: Path) -> None:
    (folder.parent / "secret").write_text("hush")
    (folder / "tokenizer.json").symlink_to(folder.parent / "secret")
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    assert "tokenizer.json" in done.err
    assert not (folder / NAME).exists()


def test_a_folder_that_changes_meanwhile_gets_no_index(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_late(path: str) -> str:
        artifact = weights_index.write_index(path)
        (folder / "late.safetensors").write_bytes(b"y")
        return artifact

    monkeypatch.setattr(command, "write_index", write_late)
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    assert "changed while it was read: late.safetensors" in done.err
    assert done.out == ""
    assert not (folder / NAME).exists()


def test_a_missing_or_empty_folder_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("weights", "index", str(tmp_path / "none")).code == 64
    assert cli("weights", "index", str(tmp_path)).code == 64
