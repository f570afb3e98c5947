"""The reprs of replicas: complete, partial and malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.documents.inventory import Replica, address_of
from fleetctl.inventory.marks import Marks, read_marks, refused_claims, with_true_addresses, without_place

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
    ("variant", "A100"), ("variant", "a" * 64), ("variant", ["a"]),
    ("readyAt", 5), ("restartMax", True), ("restartMax", -1), ("restartMax", 10**40), ("restartMax", "5"),
    ("restartsUncounted", -1), ("startedIn", 0), ("startedIn", 1e9), ("startedIn", "4m"), ("startedIn", True),
])
def test_a_part_beyond_its_bounds_is_left_out_and_named(key: str, value: object):
    marks = read_marks(json.dumps({**REPR, key: value}))
    assert [problem.partition(" cannot be read")[0] for problem in marks.problems] == [f"the {key} in its repr"]
    assert vars_of(marks)[key] is None
    assert len(marks.members) == 1


def vars_of(marks: Marks) -> dict[str, object]:
    return {"fleet": marks.fleet, "namespace": marks.namespace, "specHash": marks.spec_hash,
            "engineHash": marks.engine_hash, "readyAt": marks.ready_at, "restartMax": marks.restart_max,
            "restartsUncounted": marks.uncounted, "startedIn": marks.started_in, "variant": marks.variant}


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


def marks_of(*members: dict[str, object]) -> Marks:
    return read_marks(json.dumps({**REPR, "members": [{**MEMBER, **one} for one in members]}))


def test_the_nodes_of_members_are_named_once_and_all_their_cards():
    marks = marks_of({"nodeId": "b"}, {"nodeId": "a", "gpuUuids": ["GPU-1", "GPU-2"]}, {"nodeId": "b"},
                     {"nodeId": None})
    assert (marks.node_ids, marks.gpu_uuids) == (["b", "a"], ["GPU-3", "GPU-1", "GPU-2", "GPU-3", "GPU-3"])


def test_all_parts_of_a_repr_are_read_and_absent_or_empty_ones_are_no_problem():
    parts = {"fleet": "lab", "namespace": "prod", "specHash": "abc", "engineHash": "e", "restartMax": 3,
             "restartsUncounted": 2, "startedIn": 247.5, "readyAt": "2026-01-02T03:04:05Z",
             "variant": "a100"}
    marks = read_marks(json.dumps({**parts, "earlierTries": ["x", 7, "y"], "failed": {"code": "DIED"}}))
    assert vars_of(marks) == parts
    assert (marks.earlier_tries, marks.failed, marks.members) == ({"x", "y"}, {"code": "DIED"}, ())
    for nothing in ({}, dict.fromkeys(parts), dict.fromkeys(parts, "")):
        assert read_marks(json.dumps(nothing)) == Marks()


def test_five_problems_are_named_and_the_rest_is_counted():
    wrong = {"fleet": 1, "namespace": 2, "specHash": 3, "engineHash": 4, "readyAt": 5}
    five = [f"the {key} in its repr cannot be read: {value}" for key, value in wrong.items()]
    assert list(read_marks(json.dumps(wrong)).problems) == five
    assert list(read_marks(json.dumps({**wrong, "restartMax": "6"})).problems) == [
        *five, "and 1 more of what it says does not count"]
    assert list(read_marks(json.dumps({**wrong, "restartMax": "6", "members": 7})).problems) == [
        *five, "and 2 more of what it says does not count"]
    assert len(marks_of(*[{"port": 0}] * 3).problems) == 1, "the same problem of several members is one"


@pytest.mark.parametrize(("value", "shown"), [
    ([1], "a list"), ({"a": 1}, "an object"), ("B" * 58, repr("B" * 58)), ("B" * 59, "'" + "B" * 59 + "..."),
    (True, "True"),
])
def test_a_problem_quotes_short_values_and_the_beginning_of_long_ones(value: object, shown: str):
    assert read_marks(json.dumps({"fleet": value})).problems == (f"the fleet in its repr cannot be read: {shown}",)


def test_an_address_that_is_none_and_a_port_that_is_none_are_left_out_and_named():
    marks = marks_of({"ip": "localhost", "port": 0})
    assert [(one.address, one.port) for one in marks.members] == [(None, None)]
    assert marks.problems == ("the address in its repr is not the IP address of a machine: 'localhost'",
                              "the port in its repr is not a port: 0")
    assert marks_of({"ip": None, "port": None}).problems == ()
    assert marks_of({"address": "10.0.0.7"}).members[0].address == "10.0.0.7", "an inventory's own word wins"


def test_a_member_without_address_group_node_and_slot_is_read():
    [member] = read_marks(json.dumps({"members": [{}]})).members
    assert (member.address, member.group, member.node_id, member.slot, member.gpus) == (None, None, None, None, 0)


@pytest.mark.parametrize("most", [
    {"slot": 100_000}, {"copy": 100_000}, {"rank": 100_000}, {"gpus": 10_240_000}, {"vram": 1 << 50}, {"cpus": 10**10},
    {"memory": 1 << 50}, {"gpuIndices": [65_535]}, {"gpuIndices": [0] * 1024}, {"gpuUuids": ["x"] * 1024},
    {"nodeId": "a" * 128}, {"role": "x"}, {"gpuIndices": [], "gpuUuids": []}, {"group": "a" * 63},
])
def test_a_member_at_its_bounds_is_read_and_beyond_them_is_not(most: dict[str, object]):
    assert len(marks_of(most).members) == 1
    for key, value in most.items():
        beyond = value + 1 if isinstance(value, int) else value * 2 if value else [-1] if key == "gpuIndices" else [""]
        if key != "role" and value != [65_535]:
            assert marks_of({**most, key: beyond}).members == (), key
    if most == {"gpuIndices": [65_535]}:
        assert marks_of({"gpuIndices": [65_536]}).members == ()


def test_a_replica_may_have_1024_members():
    assert len(marks_of(*[{}] * 1024).members) == 1024


GOT = {"source": "peer", "bytes": 0, "seconds": 0, "reused": 0, "left": []}


@pytest.mark.parametrize(("field", "most"), [
    ("bytes", 1 << 60), ("reused", 1 << 60), ("seconds", 1e11), ("source", "x" * 4096), ("from", "x" * 4096),
    ("left", ["x"] * 1021), ("left", ["x" * 4096]),
])
def test_how_weights_were_got_is_read_up_to_its_bounds(field: str, most: object):
    beyond = most * 1.01 if isinstance(most, float) else most + 1 if isinstance(most, int) else (
        [*most, "x"] if isinstance(most, list) and len(most) > 1 else
        [f"{most[0]}x"] if isinstance(most, list) else f"{most}x")
    for value, read in ((most, True), (beyond, False), *([(-1, False)] if isinstance(most, (int, float)) else [])):
        marks = marks_of({"weights": {**WEIGHTS, "fetched": {**GOT, field: value}}})
        assert [member.weights is not None for member in marks.members] == [read]
        assert (marks.problems == ()) == read


@pytest.mark.parametrize(("field", "most", "beyond"), [
    ("bytes", 1 << 60, (1 << 60) + 1), ("bytes", None, "x"),
    ("unserved", "x" * 4096, "x" * 4097), ("fetched", None, 7), ("bytes", 0, -1),
])
def test_served_weights_are_read_up_to_their_bounds(field: str, most: object, beyond: object):
    for value, read in ((most, True), (beyond, False)):
        [member] = marks_of({"weights": {**WEIGHTS, field: value}}).members
        assert (member.weights is not None) == read


def test_a_member_that_is_not_up_keeps_its_claims_and_has_no_place():
    [member] = marks_of({"weights": WEIGHTS}).members
    down = without_place(member)
    assert (down.address, down.port, down.gpu_indices, down.gpu_uuids, down.weights) == (None, None, [], [], None)
    assert down.model_copy(update={"address": "10.0.0.1", "port": 80, "gpu_indices": [3], "gpu_uuids": ["GPU-3"],
                                   "weights": member.weights}) == member


def replica_at(*members: dict[str, object], **more: object) -> Replica:
    """A replica with a member of a gang for each, at 10.0.0.1 on node a unless it says otherwise."""
    return Replica.model_validate({"model": "m", "replicaId": 0, "members": [
        {"group": "main", "rank": rank, "nodeId": "a", "address": "10.0.0.1", "port": 80, **one}
        for rank, one in enumerate(members)], **more})


ADDRESSES = {"a": "10.0.0.1", "b": "fd00::7", "unknown": None}


@pytest.mark.parametrize(("member", "hosts"), [
    ({}, None), ({}, {"a"}), ({"port": None}, None), ({"nodeId": "b", "address": "fd00::7"}, {"a", "b"}),
    ({"nodeId": "unknown", "address": "10.9.9.9"}, None), ({"address": None, "port": None, "nodeId": None}, None),
])
def test_an_address_of_the_members_node_stays(member: dict[str, object], hosts: set[str] | None):
    replica = replica_at(member)
    assert with_true_addresses(replica, ADDRESSES, hosts) is replica


def test_a_true_address_is_written_in_its_shortest_form():
    [first, second] = with_true_addresses(replica_at({"address": "::ffff:10.0.0.1"}, {}), ADDRESSES).members
    assert ((first.address, first.port), (second.address, second.port)) == (("10.0.0.1", 80), ("10.0.0.1", 80))


@pytest.mark.parametrize(("member", "hosts", "why"), [
    ({"address": "localhost"}, None, "'localhost', but that is not the IP address of a machine"),
    ({"port": 0}, None, "'10.0.0.1', but 0 is not a port"),
    ({"nodeId": "c"}, None, "'10.0.0.1', but the address of its node is not known"),
    ({"nodeId": None}, None, "'10.0.0.1', but the address of its node is not known"),
    ({}, {"b"}, "'10.0.0.1', but Ray lists no actor of it on node a"),
    ({}, set(), "'10.0.0.1', but Ray lists no actor of it on node a"),
    ({"nodeId": "b"}, None, "'10.0.0.1', but the address of its node is fd00::7"),
])
def test_another_address_is_left_out_and_the_reason_is_kept(
    member: dict[str, object], hosts: set[str] | None, why: str
):
    replica = with_true_addresses(replica_at(member, refused=["earlier"]), ADDRESSES, hosts)
    assert [(one.address, one.port, one.rank) for one in replica.members] == [(None, None, 0)]
    assert replica.refused == ["earlier", f"it says that it serves at {why}"]


def test_of_two_members_with_one_rank_only_the_first_has_an_address():
    replica = with_true_addresses(replica_at({}, {"rank": 0}, {"rank": 0, "copy": 1}, {"rank": 0, "group": "other"},
                                             {"rank": 0, "address": None}), ADDRESSES)
    assert [one.address for one in replica.members] == ["10.0.0.1", None, "10.0.0.1", "10.0.0.1", None]
    assert replica.refused == [
        "rank 0 of group main says that it serves at '10.0.0.1', but another member has the same rank"]


def test_of_a_large_gang_five_wrong_addresses_are_named():
    replica = with_true_addresses(replica_at(*[{"nodeId": "b"}] * 7), ADDRESSES)
    assert (len(replica.refused), replica.refused[5]) == (6, "and 2 more of what it says does not count")


def test_what_replicas_say_and_does_not_count_becomes_a_warning_with_their_name():
    replicas = [replica_at({}, refused=["one", "two"]), replica_at({}), replica_at({}, model="n", refused=["three"])]
    assert refused_claims(replicas) == [
        "replica ModelActor:m:0: one", "replica ModelActor:m:0: two", "replica ModelActor:n:0: three"]
