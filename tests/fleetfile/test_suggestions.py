"""Typical mistakes of a first fleet file: one problem each, with a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.fleetfile.load import inspect_bytes, inspect_fleet
from fleetctl.fleetfile.sources import SourceBytes

GANG = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/m
    replicas: 1
    workers:
    - name: main
      members:
      - role: Leader
        resources: {gpus: 1}
        nodeSelector:
          pool: h100
        engine: {command: [vllm], args: [--port, $(FLEETCTL_PORT)]}
      - role: Worker
        count: 3
        resources: {gpus: 1}
        engine: {command: [vllm]}
"""


@pytest.mark.parametrize(("written", "instead", "code", "meant"), [
    ("- key: org/m", "- name: org/m", "FL020", "key"),
    ("- key: org/m", "- id: org/m", "FL020", "key"),
    ("replicas: 1", "count: 1", "FL020", "replicas"),
    ("count: 3", "replicas: 3", "FL020", "count"),
    ("- name: main", "- name: main\n      replicas: 2", "FL020", "copies"),
    ("gpus: 1}\n        nodeS", "gpus: 1/3}\n        nodeS", "FL025", "0.3333"),
    ("pool: h100", "pool: in(h100", "FL027", 'in(h100), or "in(h100, b)" in quotes because of the comma'),
    ("\n          pool: h100", " {pool: in(h100, a100)}", "FL027",
     'in(h100), or "in(h100, b)" in quotes because of the comma'),
    ("pool: h100", 'pool: "!in(h100, a100"', "FL027", '"!in(h100, a100)"'),
    ("$(FLEETCTL_PORT)", "${FLEETCTL_PORT}", "FL008", "$(FLEETCTL_PORT)"),
    ("$(FLEETCTL_PORT)", "${HF_HOME}", "FL008", '"${HF_HOME}" in quotes'),
    ("$(FLEETCTL_PORT)", "$FLEETCTL_PORT", "FL062", "$(FLEETCTL_PORT)"),
    ("$(FLEETCTL_PORT)", '"${FLEETCTL_PROT}"', "FL062", "$(FLEETCTL_PORT)"),
    ("$(FLEETCTL_PORT)", "$PORT", "FL062", "$(FLEETCTL_PORT)"),
    ("$(FLEETCTL_PORT)", "--home=$HF_HOME", "FL062", None),
])
def test_a_mistake_is_one_problem_with_a_suggestion(written: str, instead: str, code: str, meant: str) -> None:
    assert GANG.count(written) == 1
    data = GANG.replace(written, instead).encode()
    assert [(one.code, one.suggestion) for one in inspect_bytes([SourceBytes("f.yaml", data)]).problems] == [
        (code, meant)]


@pytest.mark.parametrize(("written", "instead"), [
    ("replicas: 1", "replicas: 1\n    name: other"), ("role: Leader", "role: Leader\n        replicas: 1")])
def test_a_present_or_invalid_key_is_not_suggested(written: str, instead: str) -> None:
    found = inspect_bytes([SourceBytes("f.yaml", GANG.replace(written, instead).encode())]).problems
    assert [(one.code, one.suggestion) for one in found] == [("FL020", None)]


@pytest.mark.parametrize(("there", "given"), [
    ("fleet.yaml", "fleet.yml"), ("fleet.yml", "fleet.yaml"), ("prod.yaml", "prdo.yaml")])
def test_a_missing_file_gets_a_similar_name_as_suggestion(tmp_path: Path, there: str, given: str) -> None:
    (tmp_path / there).write_text(GANG)
    (found,) = inspect_fleet([str(tmp_path / given)]).problems
    assert (found.code, found.suggestion) == ("FL001", str(tmp_path / there))


def test_other_documents_of_a_folder_are_one_problem_each(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(GANG)
    others = {"compose.yaml": "services: {web: {image: nginx}}", "kustomization.yaml": "resources: [deploy.yaml]",
              "lab.yaml": 'formatVersion: "1.0"\nkind: Inventory\nnodes: []',
              "service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}"}
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    found = inspect_fleet([str(tmp_path)]).problems
    assert [Path(one.file).name for one in found] == list(others)
    assert "services is not a fleet" in found[0].message
    assert "--inventory" in str(found[2])


@pytest.mark.parametrize(("cluster", "message", "allowed"), [
    (f"grow: [{{name: {'n' * 64}, max: 1, node: {{gpus: 1, cpus: 1, memory: 1Gi, labels: {{a: b}}}}}}]",
     "name is too long", "at most 63 characters"),
    (f"grow: [{', '.join(['{}'] * 65)}]", "grow has too many items", "at most 64"),
])
def test_length_limits_name_characters_of_text_and_items_of_lists(cluster: str, message: str, allowed: str) -> None:
    data = GANG.replace("spec:\n", f"spec:\n  cluster: {{{cluster}}}\n", 1).encode()
    found = [one for one in inspect_bytes([SourceBytes("f.yaml", data)]).problems if one.code == "FL023"]
    assert [(one.message, one.allowed) for one in found] == [(message, allowed)]
