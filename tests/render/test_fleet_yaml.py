"""A merged fleet as YAML: it loads as the same fleet, and every line has its origin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.fleetfile.extends import join
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import LoadedFleet, inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.render.merged_fleet import MASKED_NOTE, render_fleet_json, render_fleet_yaml
from tests.fleetfile.fleets import fleet
from tests.fleetfile.memory_tree import inspect
from tests.fleetfile.split_fleets import fleets_in_files

FLEETS = Path(__file__).parents[2] / "fleets"
ORIGIN = re.compile(r"^(.*?)  +# ([^ ]+):(\d+)$")


def rendered(loaded: LoadedFleet, *, origins: bool = False, show_env: bool = True) -> str:
    assert loaded.fleet is not None, "\n".join(map(str, loaded.problems))
    return render_fleet_yaml(join(loaded.documents), origins=origins, show_env=show_env)


def loaded_again(text: str, folder: Path = Path()) -> LoadedFleet:
    return inspect_bytes([SourceBytes(str(folder / "rendered.yaml"), text.encode())])


def meaning(fleet: ResolvedFleet | None) -> Any:
    assert fleet is not None
    models = [(one.key, one.replicas, one.priority, one.restart, one.placement, one.workers, one.spec_hash)
              for one in fleet.models]
    return fleet.name, fleet.cluster, fleet.policies, fleet.policy, models


@settings(max_examples=cases(12))
@given(fleets_in_files(), st.booleans())
def test_rendered_yaml_loads_as_the_same_fleet(fleet_and_files: Any, origins: bool) -> None:
    before = inspect(fleet_and_files[1])
    text = rendered(before, origins=origins)
    assert meaning(loaded_again(text).fleet) == meaning(before.fleet)
    assert text.isascii() or text.replace("\n", "").isprintable()


@settings(max_examples=cases(12))
@given(fleets_in_files())
def test_every_line_has_its_origin(fleet_and_files: Any) -> None:
    _, files = fleet_and_files
    for line in rendered(inspect(files), origins=True).splitlines():
        match = ORIGIN.match(line)
        if match is None:
            continue  # inside a text of several lines, which has its origin on the first one
        key = re.match(r'[- ]*([A-Za-z]+|"[^"]*"):', match[1])
        source_line = files[match[2]].splitlines()[int(match[3]) - 1]
        assert key is None or key[1].strip('"') in source_line


@settings(max_examples=cases(12))
@given(fleets_in_files())
def test_a_rendered_fleet_is_in_the_layout_of_fmt(fleet_and_files: Any) -> None:
    text = rendered(inspect(fleet_and_files[1]), origins=True)
    assert not format_source(SourceBytes("rendered.yaml", text.encode())).changed


@settings(max_examples=cases(12))
@given(fleets_in_files())
def test_environment_values_are_masked_and_a_masked_fleet_cannot_be_loaded(fleet_and_files: Any) -> None:
    def secret(text: str) -> str:
        return re.sub(r'("env": \{)', r'\1"SECRET": "hush-hush", ', text)

    files = {file: secret(text) for file, text in fleet_and_files[1].items()}
    given = inspect(files)
    masked = rendered(given, show_env=False)
    assert "hush-hush" not in masked
    assert "hush-hush" not in render_fleet_json(join(given.documents), (), show_env=False)
    if "hush-hush" in rendered(given):
        assert masked.startswith(MASKED_NOTE)
        assert {problem.code for problem in loaded_again(masked).errors} == {"FL012"}


@pytest.mark.parametrize("path", sorted(FLEETS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_load_as_the_same_fleet(path: Path) -> None:
    from fleetctl.fleetfile.load import inspect_fleet

    loaded = inspect_fleet([str(path)])
    if loaded.fleet is not None:  # a base file need not be a complete fleet
        assert meaning(loaded_again(rendered(loaded, origins=True), path.parent).fleet) == meaning(loaded.fleet)


def test_two_files_given_together_are_one_document() -> None:
    head = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n"
    group = "workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [x]}}]}]"
    files = {"a.yaml": f"{head}  nodes: [{{cordon: true}}]\n  models:\n  - {{key: a, replicas: 1, {group}}}\n",
             "b.yaml": f"{head}  cluster: {{namespace: ray}}\n  nodes:\n  - cordon: false\n  models:\n"
                       f"  - {{key: b, replicas: 1, {group}}}\n"}
    assert rendered(inspect(files, "a.yaml", "b.yaml"), origins=True) == """\
apiVersion: fleetctl/v1      # b.yaml:1
kind: Fleet                  # b.yaml:2
metadata: {name: lab}        # b.yaml:3
spec:                        # b.yaml:4
  cluster: {namespace: ray}  # b.yaml:5
  nodes:                     # b.yaml:6
  - {cordon: true}           # a.yaml:5
  - cordon: false            # b.yaml:7
  models:                    # b.yaml:8
  - key: a                   # a.yaml:7
    replicas: 1              # a.yaml:7
    workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [x]}}]}]  # a.yaml:7
  - key: b                   # b.yaml:9
    replicas: 1              # b.yaml:9
    workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [x]}}]}]  # b.yaml:9
"""


def test_a_file_name_cannot_leave_its_comment() -> None:
    name = "x\n- y: 1 \u202e.yaml"
    text = rendered(inspect({name: fleet()}, name), origins=True)
    assert "# x\\n- y: 1 \\u202e.yaml:1" in text
    assert meaning(loaded_again(text).fleet)[0] == "lab"
