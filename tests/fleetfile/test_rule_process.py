"""House rules end: whatever a schema says, its process is ended within its time and memory, and the rule is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.fleetfile import rule_schema
from tests.agent.marked_processes import alive, eventually

from .memory_tree import messages

pytestmark = pytest.mark.slow

NAME = "a" * 40 + "-0"
FLEET = f"""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: {NAME}}}
spec:
  policy: {{schemas: [rules.json, more.json]}}
  models:
  - key: m
    replicas: 9
    labels: {{{NAME}: x}}
    workers:
    - name: main
      members: [{{resources: {{gpus: 1}}, engine: {{command: [{', '.join(f'x{number}' for number in range(2000))}]}}}}]
"""
ENDLESS = "^([a-z]+)+$"


@pytest.fixture(autouse=True)
def _start_in_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the process may be slow to start; its own limit begins after that."""
    monkeypatch.setattr(rule_schema, "GRACE_S", 120.0)


def doubling(keyword: str, depth: int = 60) -> dict[str, Any]:
    """A schema of which each definition refers twice to the next one."""
    rules: dict[str, Any] = {f"a{depth}": {"type": "integer"}}
    for number in range(depth):
        rules[f"a{number}"] = {keyword: [{"$ref": f"#/$defs/a{number + 1}"}] * 2}
    return {"$defs": rules, "$ref": "#/$defs/a0"}


def of_name(**rules: Any) -> dict[str, Any]:
    return {"properties": {"metadata": {"properties": {"name": rules}}}}


def in_labels(**rules: Any) -> dict[str, Any]:
    return {"properties": {"spec": {"properties": {"models": {"items": {"properties": {"labels": rules}}}}}}}


def broken(schema: Any, more: Any = None) -> list[str]:
    return messages({"fleet.yaml": FLEET, "rules.json": json.dumps(schema), "more.json": json.dumps(more or {})})


@pytest.mark.parametrize(("schema", "at"), [
    (of_name(pattern=ENDLESS), '"pattern"'),
    (of_name(pattern="(?=(a+)+$)b"), '"pattern"'),
    (in_labels(propertyNames={"pattern": ENDLESS}), '"pattern"'),
    (in_labels(patternProperties={ENDLESS: {}}), '"patternProperties"'),
    (in_labels(patternProperties={ENDLESS: {}}, additionalProperties=False), '"patternProperties"'),
    (in_labels(dependentSchemas={NAME: {"propertyNames": {"pattern": ENDLESS}}}), '"pattern"'),
    ({"not": in_labels(unevaluatedProperties=False, patternProperties={ENDLESS: {}})}, '"unevaluatedProperties"'),
    (doubling("allOf"), ""),
    (doubling("anyOf"), ""),
    (doubling("oneOf"), ""),
])
def test_rules_without_an_end_are_ended_and_named(schema: Any, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s, before = 0.1, ""
    while limit_s < 20 and not before.endswith(f"{at}: "):  # a busy machine may not even begin within the limit
        monkeypatch.setattr(rule_schema, "LONGEST_S", limit_s := 2 * limit_s)
        place, _, text = broken(schema)[0].partition(" error FL087: the house rules were ended ")
        assert text.startswith(f"after {limit_s:g} s, while this was checked; allowed: rules that end")
        before = json.dumps(schema)[:int(place.split(":")[2]) - 1]
    assert before.endswith(f"{at}: ")


def test_the_results_of_the_files_before_it_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"properties": {"spec": {"properties": {"models": {"maxItems": 0, "description": "no models"}}}}}
    limit_s, found = 0.5, list[str]()
    while limit_s < 60 and len(found) < 2:  # a busy machine may not end the first file within the limit
        monkeypatch.setattr(rule_schema, "LONGEST_S", limit_s := 2 * limit_s)
        found = broken(first, of_name(pattern=ENDLESS))
    assert [one.split(" error ")[1].partition(";")[0] for one in found] == [
        f"FL087: the house rules were ended after {limit_s:g} s, while this was checked", "FL038: no models"]


def test_rules_that_need_too_much_memory_are_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_schema, "MOST_MEMORY", 70 << 20)
    monkeypatch.setattr(rule_schema, "LONGEST_S", 60.0)
    found = broken({"properties": {"spec": doubling("anyOf")["$defs"]["a0"]}, **doubling("anyOf")})
    assert len(found) == 1
    assert "FL087: the house rules were ended at 128 MiB of memory, while this was checked" in found[0]


def test_a_process_that_does_not_notice_its_end_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n(echo begun; exec sleep 1000) > {pipe} & wait\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(rule_schema, "LONGEST_S", 0.1)
    monkeypatch.setattr(rule_schema, "GRACE_S", 0.4)
    assert broken({})[0].partition(";")[0] == "rules.json:1:1: error FL087: the house rules were ended after 0.5 s"
    os.set_blocking(reader, True)
    while os.read(reader, 100):  # ends when no process has the pipe open
        pass
    os.close(reader)


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho one >&2; echo last >&2; kill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert broken({})[0].partition(";")[0] == (
        "rules.json:1:1: error FL087: the process that checks house rules ended with -9: last")


def test_a_process_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    assert "the process that checks house rules cannot be started: No such file" in broken({})[0]


def test_the_process_loads_no_models() -> None:
    """It starts for each command with rules."""
    script = ("import sys, fleetctl.fleetfile.rule_process\n"
              "assert not {'pydantic', 'yaml', 'fleetctl.documents'} & sys.modules.keys()")
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("schema", [
    {"properties": {"kind": {"enum": [f"x{number}" for number in range(2000)]}}},
    {"description": "x" * 100_000, "maxProperties": 1},
    {"required": [f"x{number}" for number in range(5000)]},
    {"allOf": [{"maxProperties": 1}] * 2000},
])
def test_a_long_answer_is_shortened(schema: Any) -> None:
    found = broken(schema)
    assert 1 <= len(found) <= 1001
    assert max(map(len, found)) < 1500


def test_the_process_ends_with_the_one_that_asked_even_if_that_is_killed() -> None:
    """A watch kills the loading process, which is then no longer there to end what it started."""
    asks = ("from fleetctl.fleetfile import rule_schema\nrule_schema.LONGEST_S = 1000.0\n"
            f"rule_schema.evaluate([{json.dumps(json.dumps(of_name(pattern=ENDLESS)))}], "
            f"{{'metadata': {{'name': {NAME!r}}}}})")
    asking = subprocess.Popen([sys.executable, "-c", asks], cwd=Path(__file__).parents[2])
    children = Path(f"/proc/{asking.pid}/task/{asking.pid}/children")
    try:
        [pid] = eventually(lambda: children.read_text().split(), "it has asked")
        command = Path(f"/proc/{pid}/cmdline")
        eventually(lambda: b"rule_process" in command.read_bytes() and ticks(pid) > 50, "it checks")
    finally:
        asking.kill()
        asking.wait()
    eventually(lambda: not alive(int(pid)), "it has ended")


def ticks(pid: str) -> int:
    """The processor time that a process has taken, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
