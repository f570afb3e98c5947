"""The reprs of replicas: complete, partial and malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.documents.inventory import address_of
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


@pytest.mark.parametrize("weights", [
    3, [], {}, {**WEIGHTS, "port": 0}, {**WEIGHTS, "artifact": "x"}, {**WEIGHTS, "view": "../.."},
    {**WEIGHTS, "bytes": -1}, {**WEIGHTS, "port": True}, {**WEIGHTS, "port": "7000"}, {**WEIGHTS, "bytes": 1 << 61},
    *({**WEIGHTS, "fetched": {"source": "x", **more}} for more in (
        {"bytes": -1}, {"seconds": 1e300}, {"left": ["x"] * 2000}, {"from": "x" * 5000})),
])
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


@pytest.mark.parametrize(("key", "value"), [
    ("fleet", "Lab"), ("fleet", 7), ("fleet", "a" * 64), ("fleet", "lab\n"), ("namespace", "a\nb"), ("namespace", []),
    ("specHash", "a b"), ("specHash", "a" * 129), ("specHash", {}), ("engineHash", "\u202e"), ("readyAt", "yesterday"),
    ("readyAt", 5), ("restartMax", True), ("restartMax", -1), ("restartMax", 10**40), ("restartMax", "5"),
])
def test_a_part_beyond_its_bounds_is_left_out_and_named(key: str, value: object):
    marks = read_marks(json.dumps({**REPR, key: value}))
    assert [problem.partition(" cannot be read")[0] for problem in marks.problems] == [f"the {key} in its repr"]
    assert vars_of(marks)[key] is None
    assert len(marks.members) == 1


def vars_of(marks: Marks) -> dict[str, object]:
    return {"fleet": marks.fleet, "namespace": marks.namespace, "specHash": marks.spec_hash,
            "engineHash": marks.engine_hash, "readyAt": marks.ready_at, "restartMax": marks.restart_max}


@pytest.mark.parametrize("more", [
    {"gpus": -1}, {"vram": 1 << 61}, {"cpus": 10**30}, {"memory": -5}, {"rank": -1}, {"copy": 10**9}, {"slot": -1},
    {"group": "a b"}, {"group": "a\n}"}, {"role": "\x1b[2J"}, {"nodeId": "a\nb"}, {"nodeId": "a" * 129},
    {"gpuIndices": [0] * 1025}, {"gpuIndices": [-1]}, {"gpuUuids": ["x"] * 1025}, {"gpuUuids": ["a b"]},
])
def test_members_beyond_their_bounds_are_reported_and_claim_nothing(more: dict[str, object]):
    marks = read_marks(json.dumps({**REPR, "members": [{**MEMBER, **more}]}))
    assert (marks.members, marks.problems) == ((), ("the members in its repr cannot be read",))


def test_a_replica_has_no_thousands_of_members():
    assert read_marks(json.dumps({**REPR, "members": [MEMBER] * 1025})).members == ()


@pytest.mark.parametrize("text", [
    "", "10.0.0", "10.0.0.256", "010.0.0.1", "0x0a.0.0.1", "10.0.0.1/32", "10.0.0.1:80", "[::1]", "fe80::1%eth0",
    "::%1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "10.0.0.1 ", "\u0661.0.0.1", "1.1.1.1" * 20,
    "localhost",
])
def test_only_an_address_that_can_be_one_machines_is_an_address(text: str):
    assert address_of(text) is None


@pytest.mark.parametrize(("text", "shortest"), [
    ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("::FFFF:a00:1", "10.0.0.1"), ("FD00:0:0::7", "fd00::7"),
    ("127.0.0.1", "127.0.0.1"), ("fe80::1", "fe80::1"),
])
def test_an_address_has_one_form(text: str, shortest: str):
    assert address_of(text) == shortest
