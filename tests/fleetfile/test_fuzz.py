"""Any bytes and any structure give problems or a fleet, never another exception; every problem has a place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.keys import homes
from fleetctl.fleetfile.load import LoadedFleet, inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes

from .fleets import fleet, model
from .memory_tree import MemoryTree

WORDS = [*homes(), "m", "Leader", "Worker", "Standalone", "fleetctl/v1", "Fleet", "16Gi", "1h", "in(a, b)", "a b",
         "$(FLEETCTL_X)", "base.yaml", "fuzz.yaml"]
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.sampled_from(WORDS),
                    st.text(max_size=5))
values = st.recursive(
    scalars, lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=4)),
    max_leaves=25,
)
SOUND: dict[str, Any] = {
    "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
    "spec": {"models": [{
        "key": "m", "replicas": 1, "placement": {"sameLabel": "rack"},
        "workers": [{"name": "main", "members": [
            {"role": "Leader", "resources": {"gpus": 1, "vram": "16Gi"}, "nodeSelector": {"a": "b"},
             "engine": {"command": ["a"], "env": {"A": "b"}, "readiness": {"http": {"path": "/"}}}},
            {"role": "Worker", "count": 2, "engine": {"command": ["a"]}}]}]}]},
}


_MAIN = SOUND["spec"]["models"][0]["workers"]
WITH_VARIANTS: dict[str, Any] = {**SOUND, "spec": {
    "shapes": {"one": {"placement": {"spread": "zone"}, "model": {"parameters": "8B"}, "workers": [
        {"name": "main", "members": [
            {"resources": {"gpus": 1}, "engine": {"command": ["a", "$(FLEETCTL_VARIANT)"]}}]}]}},
    "models": [{"key": "m", "replicas": 3, "update": {"mode": "surge"}, "serving": {"groups": ["main"]}, "variants": [
        {"name": "a", "shape": "one", "max": 4}, {"name": "b", "shape": {"name": "one", "workers": [
            {"name": "main", "copies": 2}]}},
        {"name": "c", "workers": _MAIN, "min": 1, "placement": {"sameLabel": "rack"},
         "model": {"parameters": "8B"}}]}]}}


RULED = {**SOUND, "spec": {**SOUND["spec"], "policy": {"schemas": ["rules.json"]},
                           "defaults": {"priority": 1, "placement": {"spread": "zone"}}}}
RULES = json.dumps({
    "maxProperties": 1, "additionalProperties": False, "properties": {"spec": {
        "required": ["nodes"], "propertyNames": {"maxLength": 3}, "properties": {"models": {"maxItems": 0, "items": {
            "$ref": "#/$defs/all"}}}}},
    "$defs": {"all": {"type": "null", "patternProperties": {"": {"$ref": "#/$defs/all"}}, "items": {
        "$ref": "#/$defs/all"}, "pattern": "^$", "maximum": -9}}})


def check(data: bytes, base: str = fleet(), rules: str = RULES) -> LoadedFleet:
    tree = MemoryTree({"fuzz.yaml": "", "base.yaml": base, "rules.json": rules})
    inspected = inspect_bytes([SourceBytes("fuzz.yaml", data)], tree=tree)
    lines = {"fuzz.yaml": data.count(b"\n") + 1, "base.yaml": base.count("\n") + 1, "rules.json": rules.count("\n") + 1}
    assert all(1 <= problem.line <= lines[problem.file] and problem.column >= 1 for problem in inspected.problems)
    assert (inspected.fleet is None) == bool(inspected.errors)
    return inspected


def formatted(data: bytes) -> str | None:
    try:
        return format_source(SourceBytes("fuzz.yaml", data)).after
    except FleetFileError:
        return None


@given(st.binary(max_size=200))
def test_random_bytes_give_problems_or_a_fleet(data: bytes) -> None:
    check(data)
    formatted(data)


@given(st.text(alphabet="ab01:-?,[]{}#&*!|>'\"%@`\n \t<.~", max_size=60))
def test_random_yaml_punctuation_gives_problems_or_a_fleet(text: str) -> None:
    check(text.encode())
    after = formatted(text.encode())
    if after is not None:
        assert formatted(after.encode()) == after


@given(values)
def test_random_structures_give_problems_or_a_fleet(value: Any) -> None:
    check(json.dumps(value).encode())


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in below for found in paths(inner, (*path, key)))]


def with_anything(path: tuple[Any, ...], value: Any, sound: dict[str, Any] = SOUND) -> Any:
    document = json.loads(json.dumps(sound))
    owner = document
    for part in path[:-1]:
        owner = owner[part]
    owner[path[-1]] = value
    return document


anywhere = st.sampled_from(paths(SOUND)[1:])


@settings(max_examples=cases(120))
@given(anywhere, values)
def test_any_value_anywhere_in_a_valid_fleet_gives_problems_or_a_fleet(path: tuple[Any, ...], value: Any) -> None:
    check(json.dumps(with_anything(path, value)).encode())


anywhere_in_variants = st.sampled_from(paths(WITH_VARIANTS)[1:])


@settings(max_examples=cases(120))
@given(anywhere_in_variants, values, anywhere_in_variants, values)
def test_any_values_among_variants_and_their_bases_give_problems_or_a_fleet(
    path: tuple[Any, ...], value: Any, below: tuple[Any, ...], base: Any
) -> None:
    assert check(json.dumps(WITH_VARIANTS).encode()).fleet
    over = with_anything(path, value, WITH_VARIANTS)
    check(json.dumps(over).encode())
    formatted(json.dumps(over, indent=1).encode())
    check(json.dumps({**over, "extends": "base.yaml"}).encode(), json.dumps(with_anything(below, base, WITH_VARIANTS)))


@given(st.sampled_from(paths(WITH_VARIANTS)[1:]), values)
def test_any_value_among_variants_under_house_rules_gives_problems(path: tuple[Any, ...], value: Any) -> None:
    sound = {**WITH_VARIANTS, "spec": {**WITH_VARIANTS["spec"], "policy": {"schemas": ["rules.json"]}}}
    check(json.dumps(with_anything(path, value, sound)).encode())


@given(anywhere, values, anywhere, values)
def test_any_overlay_over_any_base_gives_problems_or_a_fleet(
    path: tuple[Any, ...], value: Any, below: tuple[Any, ...], base: Any
) -> None:
    over = {**with_anything(path, value), "extends": "base.yaml"}
    check(json.dumps(over).encode(), json.dumps(with_anything(below, base)))


@given(st.sampled_from(paths(RULED)[1:]), values)
def test_any_value_anywhere_under_house_rules_gives_problems_or_a_fleet(path: tuple[Any, ...], value: Any) -> None:
    check(json.dumps(with_anything(path, value, RULED)).encode())


def test_every_value_of_a_model_can_break_a_house_rule() -> None:
    assert len(check(json.dumps(RULED, indent=1).encode()).errors) > 30


@given(st.dictionaries(st.sampled_from(["type", "items", "properties", "$ref", "not", "required", "enum", "pattern"]),
                       values) | values)
def test_any_value_as_house_rules_gives_problems_or_a_fleet(schema: Any) -> None:
    check(json.dumps(RULED).encode(), rules=json.dumps(schema, indent=1))


@given(values)
def test_any_value_of_extends_gives_problems_or_a_fleet(value: Any) -> None:
    check(json.dumps({**SOUND, "extends": value}).encode())


@given(st.integers(0, 400), st.sampled_from([b"\t", b"'", b"[", b": ", b"\n", b"*a", b"&a ", b"\xc3", b"!", b"- "]))
def test_a_random_edit_of_a_valid_file_gives_problems_or_a_fleet(at: int, slip: bytes) -> None:
    data = fleet(model("a"), model("b", restart="{max: 1}")).encode()
    broken = data[:at] + slip + data[at:]
    check(broken)
    formatted(broken)
