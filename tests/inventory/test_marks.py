"""What replicas tell of themselves, whole, half and malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.inventory.marks import read_marks

MEMBER = {"group": "main", "copy": 1, "role": "Leader", "rank": 0, "nodeId": "a", "gpus": 5000, "vram": 7, "cpus": 1,
          "memory": 2}
ENV = {"FLEETCTL_FLEET": "lab", "FLEETCTL_SPEC_HASH": "new", "FLEETCTL_MEMBERS": json.dumps([MEMBER])}
REPR = json.dumps({"v": 1, "fleet": "lab", "specHash": "old", "members": [
    {"group": "main", "copy": 1, "role": "Leader", "rank": 0, "nodeId": "a", "ip": "10.0.0.1", "port": 80,
     "gpuIndices": [3], "gpuUuids": ["GPU-3"]}]})


def test_both_sources_together_with_the_environment_first():
    marks = read_marks(ENV, REPR)
    assert (marks.fleet, marks.spec_hash, marks.problems, marks.hidden) == ("lab", "new", (), False)
    assert [(m.copy_index, m.gpus, m.vram) for m in marks.planned] == [(1, 5000, 7)]
    assert [(m.address, m.port, m.gpu_indices, m.gpu_uuids) for m in marks.reported] == [
        ("10.0.0.1", 80, [3], ["GPU-3"])]


def test_either_source_alone_is_enough_to_know_whose_it_is():
    assert read_marks(ENV, "").fleet == "lab"
    assert read_marks({}, REPR).fleet == "lab"
    assert read_marks({}, "<Engine object>").fleet is None


def test_a_newer_repr_is_read_as_far_as_it_is_known():
    marks = read_marks({}, '{"v": 2, "fleet": "lab", "specHash": "x", "members": [], "extra": 1}')
    assert (marks.fleet, marks.problems) == ("lab", ())


def test_hidden_marks_are_known_to_be_hidden_unless_the_repr_tells():
    redacted = dict.fromkeys(ENV, "<redacted>")
    assert read_marks(redacted, "").hidden
    told = read_marks(redacted, REPR)
    assert (told.hidden, told.fleet, told.spec_hash) == (False, "lab", "old")


@pytest.mark.parametrize("members", ["", "{", "{}", "3", "[3]", '[{"rank": "x"}]', "[" * 100_000])
def test_unreadable_members_are_named(members: str):
    marks = read_marks({**ENV, "FLEETCTL_MEMBERS": members}, "")
    assert marks.problems == ("the members in FLEETCTL_MEMBERS cannot be read",)
    assert (marks.fleet, marks.planned) == ("lab", ())


@pytest.mark.parametrize("text", ["{", '{"v": 1', "{" * 100_000, '{"members": 3}'])
def test_an_unreadable_repr_is_named(text: str):
    assert len(read_marks(ENV, text).problems) == 1


@given(st.dictionaries(st.sampled_from(list(ENV)), st.text()), st.text() | st.from_regex(r"\{.*\}"))
def test_nothing_an_actor_says_can_break_the_reading(environment: dict[str, str], repr_name: str):
    read_marks(environment, repr_name)
