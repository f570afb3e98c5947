"""A replica's description of itself, and how a failure survives Ray's wrapping."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from fleetctl.agent import replica as replica_module
from fleetctl.agent.messages import Engine, FailedStart, Lifecycle, Member, Replica
from fleetctl.agent.report import (
    StartFailed,
    actor_name,
    decode_failure,
    describe,
    encode_failure,
    injected_variables,
    keep_failure,
    kept_failure,
    name_of,
    place_of,
    read_mark,
)
from fleetctl.agent.wire import in_parts
from fleetctl.documents import fleet
from fleetctl.inventory.marks import ReplicaName, parse_actor_name, read_marks
from fleetctl.planner.weights import variables_of

MEMBER = Member("main", 0, "Standalone", 0, "n1", "node-a", gpus=2_500, vram=7 << 30, log="x.log", supervisor="source",
                engine=Engine(("serve",), env={"TOKEN": "hush-hush"}))
REPLICA = Replica("org/m:1/3", "org/m:1", 3, Lifecycle(1.0, restart_max=5), "abc", fleet="lab", namespace="prod",
                  members=(MEMBER,))
PLACE = place_of(MEMBER)._replace(ip="10.0.0.7", port=7001, gpu_indices=[1], gpu_uuids=["GPU-aa"])
RAY_DIED = """\
The actor died because of an error raised in its creation task, ray::ModelActor.__init__() (pid=1, ip=10.0.0.7)
  File "/tmp/replica.py", line 30, in __init__
    fail_start(replica, failure, restarted)
RuntimeError: {}
"""


def test_the_inventory_reads_model_and_id_back_from_an_actors_name() -> None:
    """LocalAI W1 to W4: a replica's key is made of its model's key and its id."""
    for model in ("m", "org/m", "org/m:1", "a#b{c}", "ModelActor:x"):
        assert parse_actor_name(actor_name(model, 12)) == ReplicaName(model, 12)


def test_a_replica_that_is_up_describes_its_claim_and_its_address() -> None:
    report = describe(REPLICA, [PLACE], "2026-03-04T12:00:00Z")
    assert json.loads(report) == {
        "v": 1, "fleet": "lab", "namespace": "prod", "specHash": "abc", "restartMax": 5,
        "readyAt": "2026-03-04T12:00:00Z", "members": [{
            "slot": 0, "gpus": 2_500, "vram": 7 << 30, "cpus": 0, "memory": 0, "group": "main", "copy": 0,
            "role": "Standalone", "rank": 0, "nodeId": "n1", "ip": "10.0.0.7", "port": 7001, "gpuIndices": [1],
            "gpuUuids": ["GPU-aa"]}]}
    assert " " not in report
    marks = read_marks(report)
    assert (marks.fleet, marks.namespace, marks.spec_hash, marks.problems) == ("lab", "prod", "abc", ())
    [member] = marks.members
    assert (member.node_id, member.slot, member.gpus, member.vram) == ("n1", 0, 2_500, 7 << 30)
    assert (member.address, member.port, member.gpu_indices, member.gpu_uuids) == ("10.0.0.7", 7001, [1], ["GPU-aa"])


def test_the_repr_of_a_replica_contains_no_secret() -> None:
    report = describe(REPLICA, [PLACE], "2026-03-04T12:00:00Z")
    assert "hush-hush" not in report
    assert "source" not in report
    assert "serve" not in report


def test_each_member_of_a_gang_describes_its_own_claim() -> None:
    members = [MEMBER._replace(rank=rank, gpus=10_000 * (rank + 1)) for rank in range(3)]
    report = json.loads(describe(REPLICA, list(map(place_of, members)), ""))
    assert [(member["rank"], member["gpus"]) for member in report["members"]] == [(0, 10_000), (1, 20_000), (2, 30_000)]


def test_the_agent_reads_what_replicas_describe_and_nothing_else() -> None:
    mark = read_mark(describe(REPLICA, [PLACE], "2026-03-04T12:00:00Z"))
    assert mark is not None
    assert (mark.fleet, mark.level, mark.members) == ("lab", None, (PLACE._replace(gpu_indices=(1,),
                                                                                   gpu_uuids=("GPU-aa",)),))
    for text in ("", "ForeignActor(3)", "[1]", '{"v":1,"members":[{"port":"7001"}]}', "[" * 100_000,
                 '{"startedIn":1%s}' % ("0" * 400), '{"members":[{"caches":{"key":"","seconds":1%s}}]}' % ("0" * 400)):
        assert read_mark(text) is None


def test_every_variable_that_a_fleet_file_may_reference_is_injected() -> None:
    from fleetctl.fleetfile.command_line import INJECTED

    of_variant = injected_variables(REPLICA._replace(variant="a100"), MEMBER, PLACE, ("10.0.0.7", 7002))
    assert {*of_variant, "FLEETCTL_MODEL_DIR"} == {*INJECTED}
    assert of_variant["FLEETCTL_VARIANT"] == "a100"
    variables = injected_variables(REPLICA, MEMBER, PLACE, ("10.0.0.7", 7002))
    assert variables.pop("FLEETCTL_NAME").startswith("org-m-1-3-main-0-0-")
    assert variables == {
        "FLEETCTL_MODEL": "org/m:1", "FLEETCTL_REPLICA_ID": "3", "FLEETCTL_GROUP": "main", "FLEETCTL_COPY": "0",
        "FLEETCTL_RANK": "0", "FLEETCTL_GROUP_SIZE": "1", "FLEETCTL_LEADER_ADDRESS": "10.0.0.7",
        "FLEETCTL_LEADER_PORT": "7002", "FLEETCTL_PORT": "7001", "FLEETCTL_LEADER_ENDPOINT": "10.0.0.7:7002",
        "FLEETCTL_HOST": "10.0.0.7", "FLEETCTL_NODE": "node-a", "FLEETCTL_RANKS": "0",
        "FLEETCTL_ENDPOINT": "10.0.0.7:7001",
    }


def test_the_endpoint_of_a_leader_with_an_ipv6_address_has_brackets_and_its_address_has_none() -> None:
    variables = injected_variables(REPLICA, MEMBER, PLACE._replace(ip="fd00::7"), ("fd00::7", 7002))
    assert [variables[f"FLEETCTL_{name}"] for name in ("HOST", "LEADER_ADDRESS", "LEADER_ENDPOINT", "ENDPOINT")] == [
        "fd00::7", "fd00::7", "[fd00::7]:7002", "[fd00::7]:7001"]


def test_a_member_has_a_rank_for_each_of_its_whole_cards_counted_over_its_own_gang() -> None:
    gang = [MEMBER._replace(role="Leader", gpus=80_000), MEMBER._replace(role="Worker", rank=1, gpus=40_000),
            MEMBER._replace(role="Worker", rank=2, gpus=0), MEMBER._replace(role="Worker", rank=3, gpus=5_000)]
    replica = REPLICA._replace(members=[one._replace(copy=copy) for copy in (0, 1) for one in gang])
    seen = [injected_variables(replica, member, PLACE, ("h", 1)) for member in replica.members]
    assert [one["FLEETCTL_RANKS"] for one in seen] == 2 * ["0,1,2,3,4,5,6,7", "8,9,10,11", "12", "13"]
    assert {one["FLEETCTL_GROUP_SIZE"] for one in seen} == {"4"}


def test_a_plan_counts_the_ranks_of_a_member_as_its_engine_does() -> None:
    shape = [fleet.Member.model_validate({"role": role, "count": count, "resources": {"gpus": gpus},
                                          "engine": {"command": ["serve"]}})
             for role, count, gpus in (("Worker", 2, 4), ("Leader", None, 8), ("Worker", None, 0.5))]
    gang = fleet.WorkerGroup(name="main", members=shape).by_rank
    members = [MEMBER._replace(rank=rank, gpus=one.resources.gpus) for rank, one in enumerate(gang)]
    planned = [variables_of({"model": "m", "replicaId": 0}, {"group": "main", "copy": 0, "rank": rank}, gang)
               for rank in range(4)]
    replica = REPLICA._replace(model="m", replica_id=0, members=members)
    started = [injected_variables(replica, member, PLACE, ("h", 1)) for member in members]
    assert [{name: variables[name] for name in planned[0]} for variables in started] == planned
    assert [one["FLEETCTL_RANKS"] for one in planned] == ["0,1,2,3,4,5,6,7", "8,9,10,11", "12,13,14,15", "16"]


@pytest.mark.parametrize("model", ["org/m:1", "\u6a21\u578b", "-", "x" * 512, "A_B.C", "1"])
@pytest.mark.parametrize("group", ["main", "g" * 63, "a-" * 30 + "b"])
def test_a_members_name_is_a_dns_label_that_stays_and_that_no_other_member_has(model: str, group: str) -> None:
    member = MEMBER._replace(group=group)
    name = name_of(REPLICA._replace(model=model), member)
    assert re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name == name_of(REPLICA._replace(model=model, spec_hash="other"), member._replace(node_id="n2", log="y"))


def test_names_of_members_differ_where_their_letters_are_the_same() -> None:
    replicas = [REPLICA._replace(model=model, replica_id=number, namespace=namespace)
                for model, number, namespace in (("a/b", 0, "x"), ("a-b", 0, "x"), ("A/b", 0, "x"), ("a/b", 1, "x"),
                                                 ("a", 0, "x"), ("a/b", 0, "y"), ("a-0-main", 0, "x"))]
    members = [MEMBER, MEMBER._replace(rank=1), MEMBER._replace(copy=1), MEMBER._replace(group="g" * 62 + "a"),
               MEMBER._replace(group="g" * 62 + "b"), MEMBER._replace(group="0-main")]
    names = [name_of(replica, member) for replica in replicas for member in members]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("message", [
    "the engine exited with code 3", 'it said {"error": "no"} and left', "line one\nline two", "caf\xe9",
    "a\u2028b\x85c", "FLEETCTL_FAILED is a word", "", "x" * 3_000,
])
def test_a_failure_survives_being_wrapped_by_ray(message: str) -> None:
    failure = FailedStart("ENGINE_EXITED", message)
    packed = encode_failure(failure)
    assert "\n" not in packed
    for text in (packed, RAY_DIED.format(packed),
                 f"{RAY_DIED.format(packed)}\nThe actor is dead because of it. See the log.\n"):
        assert decode_failure(text) == failure


def test_the_last_failure_is_the_one_that_counts() -> None:
    first, second = FailedStart("A", "first"), FailedStart("B", "second")
    assert decode_failure(RAY_DIED.format(encode_failure(first)) + RAY_DIED.format(encode_failure(second))) == second


@pytest.mark.parametrize(("text", "message"), [
    ("The actor died unexpectedly before finishing this task.\n\tactor_id: ab\n",
     "The actor died unexpectedly before finishing this task."),
    ('RuntimeError: FLEETCTL_FAILED {"code": "ENGINE_EX', 'RuntimeError: FLEETCTL_FAILED {"code": "ENGINE_EX'),
    ('FLEETCTL_FAILED {"message": "without a code"}', 'FLEETCTL_FAILED {"message": "without a code"}'),
    ("FLEETCTL_FAILED [1]", "FLEETCTL_FAILED [1]"),
    ("", "Ray gave no reason"),
    (" \n\t\n", "Ray gave no reason"),
])
def test_another_error_keeps_rays_first_line(text: str, message: str) -> None:
    assert decode_failure(text) == FailedStart("REPLICA_DIED", message)


def test_a_kept_failure_is_found_by_the_actors_id(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.experimental import internal_kv
    from ray_keys import Keys

    Keys().install(monkeypatch, internal_kv)
    assert kept_failure("ab") is None
    failure = FailedStart("CARD_IN_USE", "a card\nis in use", node_ids=("id-a",))
    keep_failure("ab", failure)
    assert kept_failure("ab") == failure
    assert kept_failure("cd") is None


def test_the_repr_of_a_replica_works_even_without_granted_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray calls it after a constructor has raised; if it raises too, the reason is lost and Ray restarts the actor."""
    class Taken:
        def __init__(self, _: object, restarted: bool) -> None:
            raise StartFailed("CARD_IN_USE", "card 0 is in use")

    monkeypatch.setattr(replica_module, "MemberSeat", Taken)
    monkeypatch.setattr(replica_module.ReplicaActor, "_watch_record", lambda _: None)  # no Ray runs here
    monkeypatch.setattr(replica_module, "Restarts", lambda *_: None)
    monkeypatch.setattr(replica_module, "log_of", lambda _: SimpleNamespace(path="log", end=lambda _: None))
    monkeypatch.setattr(replica_module.node, "was_restarted", lambda: False)
    made = object.__new__(replica_module.ModelActor)
    with pytest.raises(RuntimeError) as raised:
        made.__init__(*in_parts(REPLICA))  # type: ignore[misc]
    failure = decode_failure(RAY_DIED.format(raised.value))
    assert (failure.code, failure.message, failure.node_ids) == ("CARD_IN_USE", "card 0 is in use", ("n1",))
    assert json.loads(repr(made))["members"] == []


@pytest.mark.parametrize(("restarted", "op", "created_ms", "said"), [
    (False, "create", 1_772_625_600_000, 249.9), (False, "create", 0, 247.4), (True, "create", 0, None),
    (False, "promote", 0, None), (False, "create", 1_772_625_500_000, 247.4),
    (False, "create", 1_772_625_609_000, 247.4),
], ids=["new", "of an older run", "restarted", "promoted", "waited", "other clock"])
def test_a_new_replica_says_how_long_its_start_took_and_no_other(
    monkeypatch: pytest.MonkeyPatch, restarted: bool, op: str, created_ms: int, said: float | None
) -> None:
    now = iter([1_000.0, 1_247.42])
    monkeypatch.setattr(replica_module, "time", SimpleNamespace(
        monotonic=lambda: next(now), time=lambda: 1_772_625_602.5))
    monkeypatch.setattr(replica_module.node, "was_restarted", lambda: restarted)
    monkeypatch.setattr(replica_module, "log_of", lambda _: SimpleNamespace(path="log"))
    monkeypatch.setattr(replica_module, "Restarts", lambda *_: SimpleNamespace(count=str, ready=lambda: None))
    monkeypatch.setattr(replica_module, "as_reloaded", lambda replica: replica)
    for name in ("Recorder", "Reloading"):
        monkeypatch.setattr(replica_module, name, lambda *_, **__: None)

    class Started(replica_module.ReplicaActor):
        _start = _require_nodes = _watch_record = _end_with_engines = _take_step = lambda *_: None  # type: ignore

    report = repr(Started(*in_parts(REPLICA._replace(op=op, created_ms=created_ms))))
    assert json.loads(report).get("startedIn") == said
    assert read_marks(report).started_in == said
