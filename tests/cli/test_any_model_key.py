"""A model key is any printable text: each way it is written out and read back gives the same key."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_keys import NDIF_KEY, model_keys
from random_cases import cases

from fleetctl.agent.messages import Engine, Lifecycle, Member, Replica
from fleetctl.agent.report import actor_name, evict_command, name_of, warm_name
from fleetctl.cli.propose import in_branch
from fleetctl.cli.replica_argument import named_replicas
from fleetctl.documents.fleet import matches_pattern
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.names import command_line, flag_with
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.first_fleet import FirstFleet, first_fleet
from fleetctl.inventory.engine_log import log_name
from fleetctl.inventory.marks import parse_actor_name

IDS = st.integers(0, 10**17)


@cache
def command(name: str) -> Any:
    """A command with its parser, as the shell's words reach it."""
    from fleetctl.cli.app import COMMANDS

    return COMMANDS[name].load(name)


def parsed(line: str) -> dict[str, Any]:
    """The values of a shown command line: split by a shell's rules, then parsed as if it were typed."""
    program, name, *words = shlex.split(line)
    assert program == "fleetctl"
    values: dict[str, Any] = command(name).make_context(name, words).params
    return values


@given(model_keys, IDS)
@example(NDIF_KEY, 0)
@example("-x", 3)
def test_a_name_is_restored_from_the_names_of_actors(key: str, replica_id: int) -> None:
    for name, level in ((actor_name(key, replica_id), "HOT"), (warm_name(key, replica_id), "WARM")):
        found = parse_actor_name(name)
        assert found is not None
        assert (found.model, found.replica_id, found.level) == (key, replica_id, level)


@given(model_keys, IDS)
@example(NDIF_KEY, 0)
@example("--yes", 3)
@example("--", 0)
def test_a_shown_command_is_parsed_into_the_same_names(key: str, replica_id: int) -> None:
    replica = f"{key}/{replica_id}"
    assert parsed(command_line("fleetctl evict", [replica, key], "--dry-run"))["replicas"] == [replica, key]
    assert parsed(evict_command(replica))["replicas"] == [replica]
    assert parsed(command_line("fleetctl logs", [replica]))["names"] == [replica]
    for verb, flags in (("deploy", "-f x.yaml"), ("scale", "-f x.yaml --replicas 2 --scale-up"), ("status", "")):
        assert parsed(command_line(f"fleetctl {verb}", [key], flags))["model"] == key
    assert parsed(f"fleetctl plan x.yaml {flag_with('--exclude', key)}")["exclude"] == [key]
    assert parsed(f"fleetctl init {flag_with('--model', key)}")["model"] == [key]
    assert parsed(f"fleetctl what-if x.yaml {flag_with('--scale', f'{key}=3')}")["scale"] == [f"{key}=3"]


@given(model_keys, st.integers(0, 3))
def test_a_name_means_the_replica_that_has_it(key: str, replica_id: int) -> None:
    rows = [{"model": model, "replicaId": number, "level": "HOT", "state": "ALIVE", "fleet": "lab"}
            for model, number in ((key, replica_id), (key, replica_id + 1), ("org/other", replica_id))]
    seen = Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "a test", "replicas": rows})
    for name, count in ((key, 2), (f"{key}/{replica_id}", 1)):
        found = named_replicas(seen, [name])
        assert [(one.model, one.replica_id) for one in found] == [(key, replica_id + at) for at in range(count)]


@settings(max_examples=cases(20))
@given(model_keys)
@example(NDIF_KEY)
@example("a: b #c")
def test_a_key_is_restored_from_a_written_and_formatted_fleet_file(key: str) -> None:
    source = SourceBytes("fleet.yaml", first_fleet(FirstFleet("lab", (key,), "vllm")).encode())
    formatted = format_source(source)
    assert not formatted.changed
    untidy = SourceBytes("fleet.yaml", source.data.replace(b"- key: ", b"- key:   "))
    for written in (source, SourceBytes("fleet.yaml", format_source(untidy).after.encode())):
        assert [model.key for model in inspect_bytes([written]).sound().models] == [key]


@given(model_keys, model_keys)
def test_names_of_files_and_engines_are_valid_and_differ_as_keys_do(key: str, other: str) -> None:
    member = Member("main", 0, "Standalone", 0, "n1", "node-a", gpus=0, vram=0, log="x", supervisor="",
                    engine=Engine(("serve",)))
    labels = [name_of(Replica(f"{one}/0", one, 0, Lifecycle(1.0), "abc", members=(member,)), member)
              for one in (key, other)]
    files = [log_name("fleet", one, 0, "main", 0, 0) for one in (key, other)]
    branches = [in_branch(one) for one in (key, other)]
    assert all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", label) for label in labels)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) for name in files)
    for names in (labels, files, branches):
        assert (names[0] == names[1]) == (key == other)


@settings(max_examples=cases(10))
@given(st.lists(model_keys, min_size=5, max_size=5))
@example(["a..b", "a.lock", "a.", "~a^b:c", "@{-1}" + "%" * 500])
def test_git_takes_the_branch_of_any_key(keys: list[str]) -> None:
    for key in keys:
        branch = f"fleetctl/lab/scale-{in_branch(key)}"
        assert max(map(len, branch.split("/"))) <= 250
        subprocess.run(["git", "check-ref-format", "--branch", branch], check=True, capture_output=True)


@pytest.mark.parametrize(("pattern", "matches"), [
    (NDIF_KEY, True), ("LanguageModel:*", True), ('*"repo_id": "openai-community/*', True), ("*gpt2*", True),
    ("openai-community/gpt2", False), ("Language[M]odel:*", False)])
def test_a_pattern_of_protected_models_matches_a_key_of_ndif(pattern: str, *, matches: bool) -> None:
    assert matches_pattern(pattern, NDIF_KEY) == matches


@given(model_keys)
def test_a_key_is_a_pattern_that_matches_itself(key: str) -> None:
    assert matches_pattern(key, key)
    assert matches_pattern(f"{key[0].replace('*', '')}*", key) or key[0] == "*"
