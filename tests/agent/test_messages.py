"""The agent's values and the client's documents name the same things: a renamed field fails here, not in a cluster."""

from __future__ import annotations

import json
import os
import re
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from small_plans import FLEET, small_plan

from fleetctl.agent import examine, messages, run_messages
from fleetctl.agent.messages import Action, Member, Place, ReloadState, Replica, Stop
from fleetctl.agent.run_messages import ApplyRequest, Outcome, Plan
from fleetctl.agent.wire import PART, WrongDocument, document_of, from_parts, in_parts, parse
from fleetctl.apply import explicit, node_jobs
from fleetctl.apply.prepare import ApplyOptions, apply_request
from fleetctl.documents import diagnosis, engine, events, fleet, inventory, plan, record, weights
from fleetctl.inventory.assemble import PlacementGroup

SAME = {
    "FromNode": engine.FromNode, "PortProbe": engine.HttpProbe, "ExecProbe": engine.ExecProbe, "Probe": engine.Probe,
    "Engine": engine.Engine, "Lifecycle": record.Lifecycle, "WeightSource": weights.WeightSource,
    "PlannedWeights": weights.PlannedWeights, "GotWeights": weights.GotWeights, "GotCaches": weights.GotCaches,
    "ServedWeights": weights.ServedWeights, "Member": plan.ActionMember,
    "Resident": plan.PlannedResident, "Place": inventory.ReplicaMember,
    "Action": plan.Action, "PlannedReload": plan.PlannedReload,
    "ShapeMember": fleet.Member, "ShapeGroup": fleet.WorkerGroup, "Blocked": plan.Blocked, "NodeType": plan.Growth,
    "OtherReplica": plan.Lost, "PlanFleet": plan.PlanFleet, "PlanOptions": plan.PlanFlags, "Plan": plan.Plan,
    "Orphan": diagnosis.OrphanProcess, "LeftLock": diagnosis.LeftLock, "Outcome": events.ReplicaOutcome,
}
IN_THEIR_ROOM = {examine.Unmet: diagnosis.Unmet, examine.Disk: diagnosis.Disk,
                 examine.FailedCard: diagnosis.FailedCard, examine.Examined: diagnosis.ExaminedNode}
ONLY_HERE = {"Member": {"engine", "supervisor", "log"}, "Place": {"ip", "unchecked"}}
"""Fields that the agent adds for its actors, or writes into a repr."""


@pytest.mark.parametrize(("ours", "theirs"), [
    *(({**vars(messages), **vars(run_messages)}[name], theirs) for name, theirs in SAME.items()),
    *IN_THEIR_ROOM.items()])
def test_every_field_is_one_of_the_document_and_required_where_it_may_be_absent_there(
    ours: Any, theirs: type[BaseModel]
) -> None:
    name = ours.__name__
    fields = {field.alias or key: field for key, field in theirs.model_fields.items()}
    whole = document_of(ours(*[0] * len(ours._fields)))
    keys = dict(zip(whole, ours._fields, strict=True))
    unknown = set(keys) - set(fields) - ONLY_HERE.get(name, set())
    assert not unknown, f"{theirs.__name__} has no {', '.join(sorted(unknown))}"
    document = {key: fields[key].get_default(call_default_factory=True) for key in keys
                if key in fields and not fields[key].is_required()}
    absent = {key for key, default in document.items() if fields[key].exclude_if and fields[key].exclude_if(default)}
    required = {key for key, field in keys.items() if field not in ours._field_defaults
                and type(None) not in get_args(ours.__annotations__[field])}
    assert not absent & required, f"{theirs.__name__} may leave out {', '.join(sorted(absent & required))}"


def test_models_with_the_same_spec_may_end_their_engines_differently() -> None:
    """Plans have a spec once for all models that have it; a reader that knows no `stop` ends engines as before."""
    one = FLEET[FLEET.index("  - key: org/one:1"):FLEET.index("  - key: org/gang")]
    others = [one.replace("org/one:1", key).replace("env:", f"stop: {{{stop}}}, env:") for key, stop in (
        ("org/two", "grace: 5m"), ("org/three", "signal: SIGINT"))]
    made = small_plan("a", "b", "c", "d", "e", "f", "g", "h", "i", fleet=FLEET + "".join(others))
    assert len({action.spec_hash for action in made.actions}) == 2
    sent = json.dumps(apply_request(made, "job-1", "ann", ApplyOptions(), may_replan=False))
    plan = parse(ApplyRequest, json.loads(sent)).plan
    found = {(action.model, member.engine_stop) for action in plan.actions for member in action.members}
    assert found == {("org/one:1", Stop("SIGTERM", 30.0)), ("org/gang", Stop("SIGTERM", 30.0)),
                     ("org/two", Stop("SIGTERM", 300.0)), ("org/three", Stop("SIGINT", 30.0))}
    assert Stop()._asdict() == engine.Stop.model_validate({}).as_json()


def test_a_whole_request_is_read_and_written_without_loss() -> None:
    made = small_plan("a", "b", "c")
    options = ApplyOptions(not_awaited={"org/one:1": (3,)})
    sent = json.loads(json.dumps(apply_request(made, "job-1", "ann", options, may_replan=True)))
    request = parse(ApplyRequest, sent)
    again = document_of(request)
    assert_within(again, sent)
    assert request.plan.actions[0].lifecycle.startup_timeout == 1800.0
    assert [action.id for action in request.plan.actions] == [action.id for action in made.actions]
    assert request.plan.specs[request.plan.actions[-1].spec_hash].engine("main", 0).env == {"TOKEN": "hush-hush"}


def assert_within(part: Any, whole: Any, path: str = "") -> None:
    """Assert that everything in `part` is in `whole`; what `whole` lacks may only be a default that says nothing."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key not in whole:
                assert value in (None, 0, "", [], {}) or key == "engine", f"{path}.{key} = {value!r}"
            else:
                assert_within(value, whole[key], f"{path}.{key}")
    elif isinstance(part, list):
        assert len(part) == len(whole), path
        for index, (value, original) in enumerate(zip(part, whole, strict=True)):
            assert_within(value, original, f"{path}[{index}]")
    else:
        assert part == whole, path


def test_the_ranks_of_a_group_are_the_leader_and_then_the_workers() -> None:
    group = parse(run_messages.ShapeGroup, {"name": "main", "members": [
        {"role": "Worker", "count": 2, "engine": {"command": ["work"]}},
        {"role": "Leader", "engine": {"command": ["lead"]}}]})
    assert [found.command for found in group.engines] == [("lead",), ("work",), ("work",)]


@pytest.mark.parametrize("size", [0, 100, PART, 400_000])
def test_an_actor_gets_its_replica_in_parts_that_ray_keeps_with_it(size: int) -> None:
    member = Member("main", 0, "Standalone", 0, "id-a", "a", supervisor=os.urandom(size).hex())
    replica = Replica("m/0", "m", 0, messages.Lifecycle(60.0), members=(member,))
    parts = in_parts(replica)
    assert max(map(len, parts)) < 100 << 10
    assert from_parts(Replica, parts) == replica


@pytest.mark.parametrize(("document", "where"), [
    ({"planId": "x"}, "Plan has no fleet"),
    ({"planId": 3, "fleet": {"name": "f"}}, "Plan.planId is int"),
    ({"planId": "x", "fleet": {"name": "f"}, "blocked": [{"model": "m", "replicas": True, "code": "", "message": ""}]},
     "Plan.blocked[0].replicas is bool"),
    ({"planId": "x", "fleet": "f"}, "Plan.fleet is str"),
    ({"planId": "x", "fleet": {"name": "f"}, "specs": []}, "Plan.specs is list"),
    ([], "Plan is list"),
])
def test_a_document_of_another_form_names_its_part_and_not_its_value(document: Any, where: str) -> None:
    with pytest.raises(WrongDocument, match="^" + re.escape(where)):
        parse(Plan, document)


def test_absent_and_null_are_defaults_and_null_is_kept_where_it_means_something() -> None:
    assert parse(Plan, {"planId": "x", "fleet": {"name": "f"}, "growth": None}).growth == ()
    assert parse(ReloadState, {"state": "reloading"}).runs == ""
    assert parse(ReloadState, {"state": "failed", "runs": None}).runs is None
    assert document_of(ReloadState("failed", runs=None))["runs"] is None


def test_none_is_left_out_unless_readers_of_the_last_release_need_the_key() -> None:
    assert document_of(Outcome("m", "ready")) == {"model": "m", "outcome": "ready", "nodes": [], "message": ""}
    assert document_of(messages.ServedWeights("a" * 64, None))["view"] is None
    assert "port" not in document_of(Place())


def test_unknown_keys_of_a_newer_release_are_ignored() -> None:
    assert parse(run_messages.PlanFleet, {"name": "f", "colour": "red"}) == run_messages.PlanFleet("f")


def test_a_reload_has_the_nodes_of_its_members() -> None:
    request = {"method": "POST", "path": "/load", "body": {"path": "$(X)"}}
    action = parse(Action, {
        "id": "m/0", "op": "reload", "model": "m", "replicaId": 0, "specHash": "s2", "lifecycle": {"startupTimeout": 9},
        "reload": {"actorId": "ab", "runs": "s1", "requests": [request]}, "members": [
            {"group": "g", "copy": 0, "role": "", "rank": rank, "nodeId": "id-a", "node": "a"} for rank in (0, 1)]})
    assert action.nodes == ["a"]
    assert action.reload.requests[0].body == {"path": "$(X)"}


@pytest.mark.parametrize(("probe", "port"), [
    ({"http": {"path": "/", "port": 8000}}, 8000), ({"tcp": {"port": 9}}, 9), ({"http": {"path": "/"}}, None),
    ({"tcp": {}}, None), ({"exec": {"command": ["true"]}}, None),
])
def test_a_probe_may_name_a_port_of_its_own(probe: dict[str, Any], port: int | None) -> None:
    assert parse(messages.Probe, probe).port == port


class Recorder:
    """Stands in for the runner of jobs about nodes, and keeps their requests."""

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, Any]] = {}

    def run(self, verb: str, job: str, request: dict[str, Any], *_: Any, **__: Any) -> list[Any]:
        self.requests[verb] = {"timeout": node_jobs.NODE_S, **request, "job": job, "toolVersion": "1"}
        return []


def test_what_the_client_asks_for_about_nodes_is_read_without_loss() -> None:
    recorder: Any = Recorder()
    node_jobs.examine(recorder, "j", {"n": [diagnosis.Need("command", "serve", "/bin"), diagnosis.Need("port", "80")]})
    process = diagnosis.OrphanProcess(pid=7, began=70, command="serve", model="m", replica_id="0")
    node_jobs.repair(recorder, "j", node_jobs.Leftovers(
        [PlacementGroup("ModelActor:m:0", (), "ab")], {"n": [process]}, [diagnosis.LeftLock(fleet="lab", number=3)]))
    node_jobs.ask_caches(recorder, "caches", "j", {"n": ["1" * 64], "o": []})
    node_jobs.prefetch(recorder, "j", {"n": []}, 60.0, lambda _: None)
    kinds = {"examine": run_messages.ExamineRequest, "repair": run_messages.RepairRequest,
             "caches": run_messages.CachesRequest, "prefetch": run_messages.PrefetchRequest}
    assert recorder.requests.keys() == kinds.keys()
    for verb, sent in recorder.requests.items():
        assert_within(sent, document_of(parse(kinds[verb], sent)))


@pytest.mark.parametrize("level", [None, "WARM", "COLD"])
def test_what_the_client_asks_for_about_replicas_is_read_without_loss(level: Any) -> None:
    served = weights.ServedWeights(artifact="1" * 64, view=None, bytes=5)
    replica = inventory.Replica(
        model="m", replica_id=3, state="ALIVE", actor_id="ab", spec_hash="h", level="WARM" if level else "HOT",
        members=[inventory.ReplicaMember(node_id="n", weights=one) for one in (served, None)])
    order = explicit.ExplicitOrder("evict", "lab", "ns", [replica], {"n": "node-a"}, {}, 5.0, 7.0, {"m": 1}, level,
                                   {"n": {"name": "node-a", "bytes": None}, "o": {"name": "node-b", "bytes": 9}})
    sent = json.loads(json.dumps(explicit._request(order, "j", "ann")))
    request = parse(run_messages.ExplicitRequest, sent)
    assert_within(sent, document_of(request))
    assert (request.replicas[0].key, request.holder.who, request.keep) == ("m/3", "ann", {"m": 1})
