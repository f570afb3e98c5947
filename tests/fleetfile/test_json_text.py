"""What a JSON writer makes is a valid fleet file, every escape of it; positions are those of the text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_here
from random_cases import cases

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes

from .memory_tree import inspect

SPECIAL = ["\u2028", "\u2029", "\x85", "\x7f", "\x9b", "\ufeff", "\ufffe", "\U0001f600", "\U0010ffff", "\t", "\r\n",
           "\\", '"', "/", "\\ud83d", "\\u0000", "'", ": ", " #", "- ", "$$(X)", "<<", "*a", "\x01", "\x1b[0m"]
texts = st.lists(st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from(SPECIAL),
                 max_size=8).map("".join)
keys = st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=8)
env_names = st.from_regex("[A-Z][A-Z0-9_]{0,5}", fullmatch=True).map("X_".__add__)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    models = [{
        "key": key, "replicas": draw(st.integers(0, 9)), "priority": draw(st.integers(-5, 5)),
        "workers": [{"name": "main", "members": [{
            "resources": {"gpus": draw(st.sampled_from([1, 0.25, 2e0])), "cpus": draw(st.integers(1, 9000)) / 1000},
            "engine": {"command": ["serve"], "args": draw(st.lists(texts, max_size=3)),
                       "env": draw(st.dictionaries(env_names, texts, max_size=3))}}]}],
    } for key in draw(st.lists(keys, min_size=1, max_size=3, unique=True))]
    return {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": models}}


def slashes(text: str) -> str:
    """Escape slashes, as PHP does."""
    return text.replace("/", "\\/")


def upper(text: str) -> str:
    """Write the digits of escapes in capitals."""
    return re.sub(r"\\(u[0-9a-f]{4}|.)", lambda match: match[0][:2] + match[0][2:].upper(), text)


@st.composite
def written(draw: st.DrawFn, fleet: dict[str, Any]) -> bytes:
    text = json.dumps(fleet, ensure_ascii=draw(st.booleans()), sort_keys=draw(st.booleans()),
                      indent=draw(st.sampled_from([None, 0, 1, 4, "\t", " \t"])),
                      separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])))
    text = draw(st.sampled_from([str, slashes, upper]))(text)
    text = draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", "\n", "\r\n", "\n\n"]))
    return draw(st.sampled_from([text, text.replace("\n", "\r\n")])).encode()


def loaded(name: str, data: bytes) -> ResolvedFleet:
    result = inspect_bytes([SourceBytes(name, data)])
    assert [problem for problem in result.problems if problem.severity == "error"] == []
    assert result.fleet is not None
    return result.fleet


@settings(max_examples=cases(100))
@given(st.data(), fleets(), st.sampled_from(["lab.json", "lab.yaml"]))
def test_json_is_a_valid_fleet_with_the_same_values(data: st.DataObject, fleet: dict[str, Any], name: str) -> None:
    text = data.draw(written(fleet))
    assert [one.value for one in compose_bytes(SourceBytes(name, text)).documents] == [fleet]
    models = loaded(name, text).models
    assert [model.key for model in models] == [model["key"] for model in fleet["spec"]["models"]]


@settings(max_examples=cases(30))
@given(st.data(), fleets())
def test_fmt_leaves_json_as_it_is(data: st.DataObject, fleet: dict[str, Any]) -> None:
    text = data.draw(written(fleet))
    assert not format_source(SourceBytes("lab.json", text)).changed


@settings(max_examples=cases(30))
@given(st.data(), fleets())
def test_each_value_has_its_place_in_the_json(data: st.DataObject, fleet: dict[str, Any]) -> None:
    fleet["spec"]["models"][-1]["replicas"] = "many"
    source = SourceBytes("lab.json", data.draw(written(fleet)))
    [problem] = [one for one in inspect_bytes([source]).problems if one.severity == "error"]
    lines = source.data.decode("utf-8-sig").split("\n")
    assert lines[problem.line - 1][problem.column - 1:].startswith('"many"')


def test_a_rendered_fleet_of_json_has_the_same_meaning_and_no_difference(tmp_path: Path) -> None:
    args = [*SPECIAL, "plain"]
    fleet = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [
        {"key": "org/\U0001f600", "replicas": 1, "workers": [{"name": "main", "members": [
            {"resources": {"gpus": 1}, "engine": {"command": ["serve"], "args": args, "env": {"A": "".join(SPECIAL)}}},
        ]}]}]}}
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for number, options in enumerate(({}, {"ensure_ascii": False}, {"indent": "\t"})):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(fleet, **options), encoding="utf-8")
        assert run_here("validate", file, env=env).returncode == 0
        rendered = run_here("render", "-f", file, "--show-env", env=env)
        assert rendered.returncode == 0, rendered.stderr
        (tmp_path / "rendered.yaml").write_text(rendered.stdout, encoding="utf-8")
        member = loaded("r.yaml", rendered.stdout.encode()).models[0].workers[0].members[0]
        assert list(member.engine.args) == args
        assert member.engine.env["A"] == "".join(SPECIAL)
        assert "no difference in meaning" in run_here("diff", file, tmp_path / "rendered.yaml", env=env).stdout


@pytest.mark.parametrize("indent", [None, 2])
def test_a_duplicate_key_in_json_is_an_error(indent: int | None) -> None:
    text = json.dumps({"apiVersion": "fleetctl/v1", "kind": "\U0001f600", "k1": 1, "k2": 2}, indent=indent)
    [problem] = [one for one in inspect_bytes([SourceBytes("lab.json", text.replace("k2", "k1").encode())]).problems
                 if one.code == "FL010"]
    position = text.index('"k2"')
    line = text.count("\n", 0, position) + 1
    assert (problem.line, problem.column) == (line, position - (text.rfind("\n", 0, position) + 1) + 1)


@pytest.mark.parametrize(("escape", "says"), [
    ("\\u0000", "NUL"), ("\\ud83d", "half of a character"), ("\\uDE00", "half of a character"),
    ("\\ud83d\\ud83d\\ude00", "half of a character"),
])
def test_an_escape_that_is_no_character_is_refused_with_its_place(escape: str, says: str) -> None:
    text = '{"kind": "\\ud83d\\ude00\\\\u0000",\n "a": ["x' + escape + '"]}'
    result = inspect_bytes([SourceBytes("lab.json", text.encode())])
    [problem] = result.problems
    assert str(problem).startswith("lab.json:2:10: error FL006: ")
    assert says in problem.message
    with pytest.raises(FleetFileError) as refused:
        format_source(SourceBytes("lab.json", text.encode()))
    assert refused.value.problems == (problem,)


def test_long_lines_long_keys_and_deep_nesting_of_json_have_the_limits_of_yaml() -> None:
    names = {f"X_{'N' * 2000}": "v", "X_B": "y" * 100_000}
    fleet = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [
        {"key": f"m{number}", "replicas": 1, "workers": [{"name": "main", "members": [
            {"resources": {"gpus": 1}, "engine": {"command": ["s"], "env": names}}]}]} for number in range(20)]}}
    assert len(loaded("lab.json", json.dumps(fleet).encode()).models) == 20
    deep = json.dumps(json.loads("[" * 100 + "]" * 100))
    for text in ('{"a": ' + deep + "}", '{"a": ' + "[" * 100_000, '{"a": [' + "{}," * 300_000 + "{}]}"):
        assert [one.code for one in inspect_bytes([SourceBytes("lab.json", text.encode())]).problems] == ["FL014"]


def test_what_is_not_quite_json_is_read_as_yaml() -> None:
    for text in ('{"a": 1, # why\n "b": 2}', "{a: 1, b: 2}", '{"a": 1, "b": 2,}'):
        [document] = compose_bytes(SourceBytes("lab.json", text.encode())).documents
        assert document.value == {"a": 1, "b": 2} == yaml.safe_load(text)
    [problem] = compose_bytes(SourceBytes("lab.yaml", b'kind: "\\ud83d\\ude00"')).problems
    assert "write \\U and eight digits" in problem.message


def test_a_base_may_be_json() -> None:
    base = json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [
        {"key": "\U0001f600", "replicas": 1, "workers": [{"name": "main", "members": [
            {"resources": {"gpus": 1}, "engine": {"command": ["s"]}}]}]}]}})
    over = "apiVersion: fleetctl/v1\nkind: Fleet\nextends: base.json\nspec: {}\n"
    assert inspect({"base.json": base, "fleet.yaml": over}).problems == ()
