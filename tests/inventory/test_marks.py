"""The reprs of replicas: complete, partial and malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.inventory.marks import Marks, read_marks

MEMBER = {"group": "main", "copy": 1, "role": "Leader", "rank": 0, "nodeId": "a", "slot": 2, "gpus": 5000, "vram": 7,
          "cpus": 1, "memory": 2, "ip": "10.0.0.1", "port": 80, "gpuIndices": [3], "gpuUuids": ["GPU-3"]}
REPR = {"v": 1, "fleet": "lab", "namespace": "prod", "specHash": "abc", "members": [MEMBER]}


def test_a_repr_has_the_fleet_claims_and_place_of_a_replica():
    marks = read_marks(json.dumps(REPR))
    assert (marks.fleet, marks.namespace, marks.spec_hash, marks.problems) == ("lab", "prod", "abc", ())
    [member] = marks.members
    assert (member.copy_index, member.slot) == (1, 2)
    assert (member.gpus, member.vram, member.cpus, member.memory) == (5000, 7, 1, 2)
    assert (member.address, member.port, member.gpu_indices, member.gpu_uuids) == ("10.0.0.1", 80, [3], ["GPU-3"])


@pytest.mark.parametrize("text", ["", "<Engine object>", "Actor(Engine, 01ab)"])
def test_the_repr_of_a_foreign_actor_is_ignored_without_a_problem(text: str):
    assert read_marks(text) == Marks()


def test_a_newer_repr_is_read_as_far_as_possible():
    marks = read_marks('{"v": 2, "fleet": "lab", "specHash": "x", "members": [], "extra": 1}')
    assert (marks.fleet, marks.problems) == ("lab", ())


@pytest.mark.parametrize("members", ["", {}, 3, [3], [{"rank": "x"}], "[{}]"])
def test_unreadable_members_are_reported(members: object):
    marks = read_marks(json.dumps({**REPR, "members": members}))
    assert marks.problems == ("the members in its repr cannot be read",)
    assert (marks.fleet, marks.members) == ("lab", ())


WEIGHTS = {"artifact": "1" * 64, "view": None, "port": 7000, "bytes": 5,
           "fetched": {"source": "peer", "from": "m/0", "left": []}}


def test_a_member_reports_the_weights_that_it_serves():
    [member] = read_marks(json.dumps({**REPR, "members": [{**MEMBER, "weights": {**WEIGHTS, "new": 1}}]})).members
    assert member.weights
    assert (member.weights.artifact, member.weights.port, member.weights.bytes) == ("1" * 64, 7000, 5)
    assert member.weights.fetched
    assert member.weights.fetched.from_ == "m/0"


@pytest.mark.parametrize("weights", [3, [], {}, {**WEIGHTS, "port": 0}, {**WEIGHTS, "artifact": "x"},
                                     {**WEIGHTS, "view": "../.."}, {**WEIGHTS, "bytes": -1}])
def test_unreadable_weights_are_reported_and_the_member_counts(weights: object):
    marks = read_marks(json.dumps({**REPR, "members": [{**MEMBER, "weights": weights}, MEMBER]}))
    assert marks.problems == ("the weights in its repr cannot be read",)
    assert [(member.gpus, member.weights) for member in marks.members] == [(5000, None), (5000, None)]


@pytest.mark.parametrize("text", ["{", '{"v": 1', "{" * 100_000])
def test_an_unreadable_repr_is_reported(text: str):
    assert read_marks(text).problems == ("its repr is not complete JSON",)


@given(st.text() | st.from_regex(r"\{.*\}"))
def test_no_repr_breaks_the_reading(repr_name: str):
    read_marks(repr_name)
