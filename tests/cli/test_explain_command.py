"""`fleetctl explain`: every field of the published schema is explained, and a wrong name gets a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.explain import complete_fields
from fleetctl.documents.schemas import all_fields, find_fields, json_schema

PAGE = Path(__file__).parents[2] / "docs" / "fleet-file.md"


def test_every_key_of_the_schema_is_found_by_its_path_and_has_a_kind_and_a_meaning() -> None:
    schema, fields = json_schema("fleet"), all_fields()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part["properties"]}
    assert {one.path[-1] for one in fields[1:]} == keys
    for one in fields[1:]:
        assert find_fields(fields, one.text)[0] is one
        assert one.kind
        assert one.about


@pytest.mark.parametrize(("path", "found"), [
    ("workers.members.resources", "spec.models.workers.members.resources"), ("placement", "spec.models.placement"),
    ("spec.defaults.placement", "spec.defaults.placement"), ("policy", "spec.policy"),
    ("models[0].workers[*].members[].engine.env", "spec.models.workers.members.engine.env"),
    ("ranksPerNode", "spec.models.placement.ranksPerNode"),
])
def test_a_path_may_start_at_any_usual_level(path: str, found: str) -> None:
    assert find_fields(all_fields(), path)[0].text == found


def test_a_path_of_dots_alone_is_the_top_level(cli) -> None:
    assert cli("explain", "..").out == cli("explain").out


@pytest.mark.parametrize(("path", "hint"), [
    ("workers.membrs.resources", "did you mean members?"), ("resorces", "did you mean resources?"),
    ("workers.members.resources.xyzzy", "fields in spec.models.workers.members.resources: gpus, vram, cpus, memory"),
    ("xyzzy..b", "run `fleetctl explain` for the top-level fields"),
    ("slot", "fields that mention it: nodes.maxReplicasPerModel"),
    ("models.startup_timeout", "did you mean startupTimeout?"), ("scheduling_timeout", "schedulingTimeout"),
])
def test_a_wrong_name_gets_the_nearest_one_suggested(cli, path: str, hint: str) -> None:
    result = cli("explain", path)
    assert result.code == 1
    assert hint in result.err


@pytest.mark.parametrize(("code", "meaning", "page"), [
    ("FL065", "a fixed port, which replicas on one node cannot share", "docs/fleet-file.md"),
    ("insufficient_gpu", "too few free GPUs on one node", "docs/placement.md")])
def test_a_code_is_explained_with_its_page(cli, code: str, meaning: str, page: str) -> None:
    result = cli("explain", code)
    assert result.code == 0
    assert [line.split(maxsplit=1)[1] for line in result.out.splitlines()] == [code.upper(), meaning, page]


def test_the_page_shows_what_the_command_prints(cli) -> None:
    result = cli("explain", "workers.members.resources")
    assert result.code == 0
    assert "\n".join(line.rstrip() for line in result.out.splitlines()) in PAGE.read_text()


def test_wrapped_text_stays_in_its_column(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head = cli("explain", "workers.members").out.split("\n\n")[0].splitlines()
    assert max(map(len, head)) <= 80
    labels = [line[:9].strip() for line in head]
    assert list(filter(None, labels)) == ["field", "value", "default", "meaning", "also at"]
    assert all(line[:9].endswith("  ") and line[9] != " " for line in head)


def test_recursive_shows_all_levels_and_paths_are_completed(cli) -> None:
    assert "      port " in cli("explain", "workers.members", "--recursive").out
    assert "port" not in cli("explain", "workers.members").out
    assert complete_fields("workers.members.engine.")[:2] == [
        "workers.members.engine.args", "workers.members.engine.caches"]
    assert "spec.models.workers" in complete_fields("spec.models.")


@pytest.mark.parametrize(("typed", "nearest"), [("INSUFFICENT_GPU", "INSUFFICIENT_GPU"), ("FL65", "FL065"),
                                             ("insufficent_vram", "INSUFFICIENT_VRAM")])
def test_a_misspelled_code_gets_the_nearest_one_suggested(cli, typed: str, nearest: str) -> None:
    result = cli("explain", typed)
    assert (result.code, result.err) == (1, f"error: there is no code {typed}\nhint: did you mean {nearest}?\n")
