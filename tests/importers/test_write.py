"""A draft becomes a fleet file with its losses as comments at their places; `fmt` and `validate` accept it."""

from __future__ import annotations

import pytest

from fleetctl.documents.position import Position
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Draft, Loss
from fleetctl.importers.write import problems_of, write_draft

PLACE = Position(file="in.yaml", line=7, column=3)


def draft(*losses: Loss, key: str = "org/one") -> Draft:
    found = Draft("lab", "in.yaml", losses=list(losses))
    found.add({"key": key, "replicas": 2, "workers": [{"name": "main", "members": [
        {"resources": {"gpus": 1}, "engine": {"command": ["serve"], "args": ["--port", "$(FLEETCTL_PORT)"]}}]}]}, PLACE)
    return found


def test_a_loss_is_a_comment_above_its_field() -> None:
    text = write_draft(draft(
        Loss(PLACE, "spec.cache", "it is gone", model="org/one"),
        Loss(PLACE, "spec.args[1]", "look at it", "todo", "org/one",
             ("workers", 0, "members", 0, "engine", "args", 1))))
    assert "  # from in.yaml:7\n  # lost: cache: it is gone\n  - key: org/one\n" in text
    assert "          - --port\n          # todo: args[1]: look at it\n          - $(FLEETCTL_PORT)\n" in text


def test_a_loss_of_a_missing_field_is_above_its_nearest_parent() -> None:
    text = write_draft(draft(Loss(PLACE, "x", "gone", model="org/one", home=("workers", 3, "members", 0))))
    assert "    # lost: x: gone\n    workers:\n" in text


def test_a_repeated_loss_is_one_comment_but_two_reports() -> None:
    twice = draft(*[Loss(PLACE, "a.b", "gone", model="org/one")] * 2)
    assert write_draft(twice).count("gone") == 1
    assert len(twice.losses) == 2


def test_the_header_has_the_input_and_the_number_of_losses() -> None:
    found = draft(Loss(None, "a", "x"), Loss(None, "b", "y", "todo"), Loss(None, "c", "z", "changed"))
    found.notes.append("A note.")
    assert write_draft(found).split("\n")[1:3] == [
        "# Made by `fleetctl import` from in.yaml: 1 lost, 1 to do, 1 changed.", "# A note."]
    assert "from in.yaml: nothing lost." in write_draft(draft())


def test_only_losses_and_tasks_make_a_draft_incomplete() -> None:
    assert not draft(Loss(None, "", "x", "changed")).partial
    assert draft(Loss(None, "", "x", "todo")).partial
    assert draft(Loss(None, "", "x")).partial


@pytest.mark.parametrize("hostile", ["a\nreplicas: 99", "\x1b[2J", "x" * 500, "{a: [b", "\u2028- key: evil", "#", ""])
def test_hostile_text_cannot_leave_its_comment(hostile: str) -> None:
    text = write_draft(draft(Loss(PLACE, hostile, hostile, model="org/one")))
    assert problems_of(text, "out.yaml") == ()
    assert not format_source(SourceBytes("out.yaml", text.encode())).changed
    assert "key: evil" not in [line.strip().removeprefix("- ") for line in text.split("\n")]


def test_errors_of_the_file_are_listed_with_their_places() -> None:
    found = draft(key="not a key ")
    problems = problems_of(write_draft(found), "out.yaml")
    assert [(problem.code, problem.file) for problem in problems] == [("FL030", "out.yaml")]


@pytest.mark.parametrize(("path", "field"), [
    ("", ""), ("replicas", "replicas"), ("spec.engines[0].members[1]", "members[1]"),
    ('metadata.labels["app.kubernetes.io/name"]', "app.kubernetes.io/name"), ('a["x.y"].b', "b"),
    ("a[0][1]", "a[0][1]"),
])
def test_the_field_of_a_loss_is_the_last_step_of_its_path(path: str, field: str) -> None:
    assert Loss(None, path, "").field == field


def test_workers_that_three_models_share_are_a_shape_unless_a_comment_is_inside_them() -> None:
    found = draft(Loss(PLACE, "x", "look", "todo", "org/one", ("workers", 0)))
    for key in ("org/two", "org/three", "org/four"):
        found.add({**found.models[0].value, "key": key}, PLACE)
    text = write_draft(found)
    loaded = inspect_bytes([SourceBytes("out.yaml", text.encode())])
    assert loaded.problems == ()
    assert text.count("shape: serve-1gpu\n") == 3
    assert text.count("command: [serve]") == 2
    assert "    # todo: x: look\n    - name: main\n" in text
    assert len({model.spec_hash for model in loaded.sound().models}) == 1
    assert not format_source(SourceBytes("out.yaml", text.encode())).changed
