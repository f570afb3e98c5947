"""The difference of a model: path, both values as written, both places, effect and message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet_texts import SECRET, engine, fleet, group, member, model

from fleetctl.documents.difference import Difference
from fleetctl.render.report.of_diff import change_text
from fleetctl.review.compare import compare
from fleetctl.review.inputs import Side

Sides = Callable[..., Side]

WEIGHTS = {"from": [{"path": "/m"}], "index": "a" * 64}
LEADER, WORKER = member("Leader"), member("Worker", count=2)
SELECTED = {"pool": "in(a, b)"}
IN_MAIN = "workers.main.members[0]"


def test_a_changed_origin_of_weights_does_not_affect_running_replicas(side: Sides) -> None:
    moved = {**WEIGHTS, "from": [{"http": "http://files/m"}]}
    [difference] = found(side, of(member(weights=WEIGHTS)), of(member(weights=moved)))
    assert (difference.path, difference.effect) == (f"{IN_MAIN}.weights.from", "none")
    [difference] = found(side, of(member(weights=WEIGHTS)), of(member(weights={**WEIGHTS, "index": "b" * 64})))
    assert (difference.path, difference.effect) == (f"{IN_MAIN}.weights.index", "drift")
    [difference] = found(side, of(member()), of(member(weights=WEIGHTS)))
    assert (difference.path, difference.effect) == (f"{IN_MAIN}.weights", "drift")


def test_another_end_of_an_engine_is_no_drift(side: Sides) -> None:
    plain, patient = member(), member(engine=engine(stop={"grace": "2m"}))
    longer = member(engine=engine(stop={"grace": "1h", "signal": "SIGINT"}))
    in_engine = f"{IN_MAIN}.engine.stop"
    assert short(found(side, of(plain), of(patient)))[0][:3] == (in_engine, "added", "none")
    assert short(found(side, of(patient), of(longer))) == [
        (f"{in_engine}.grace", "changed", "none", "2m", "1h"),
        (f"{in_engine}.signal", "changed", "none", "SIGTERM", "SIGINT")]


def test_another_description_of_a_model_is_a_difference_with_its_size(side: Sides) -> None:
    [difference] = found(side, of(member(), model={"parameters": "8B"}), of(member(), model={"parameters": "70B"}))
    assert (difference.path, difference.effect) == ("model", "none")
    assert difference.new.startswith("fleet file: 70.0 billion parameters, 130.39Gi stored (")


def found(side: Sides, old: str, new: str) -> list[Difference]:
    return compare(side(old, name="old"), side(new, name="new")).differences


def short(differences: list[Difference]) -> list[tuple[str, str, str, Any, Any]]:
    return [(one.path, one.kind, one.effect, one.old, one.new) for one in differences]


def of(*members: dict[str, Any], **more: Any) -> str:
    return fleet(model(workers=[group("main", *members)], **more))


CHANGES = {
    "a check of the memory that only warns": (fleet(model()), fleet(model(memoryCheck="warn")),
                                              [("memoryCheck", "changed", "additive", "block", "warn")]),
    "a check of the memory that blocks": (
        fleet(model(memoryCheck="warn")), fleet(model()), [("memoryCheck", "changed", "none", "warn", "block")]),
    "a model that is described": (fleet(model()), fleet(model(model={"parameters": "8B"})),
                                  [("model", "added", "none", None, {"parameters": "8B"})]),
    "a raised target": (fleet(model(replicas=2)), fleet(model(replicas=5)),
                        [("replicas", "changed", "additive", 2, 5)]),
    "a lowered target": (fleet(model(replicas=5)), fleet(model(replicas=2)), [("replicas", "changed", "held", 5, 2)]),
    "no target anymore": (fleet(model(replicas=5)), fleet(model(replicas=0)), [("replicas", "changed", "held", 5, 0)]),
    "a target after all": (fleet(model(replicas=0)), fleet(model(replicas=1)),
                           [("replicas", "changed", "additive", 0, 1)]),
    "a priority where there was none": (fleet(model()), fleet(model(priority=5)),
                                        [("priority", "changed", "none", 0, 5)]),
    "a priority taken out": (fleet(model(priority=5)), fleet(model()), [("priority", "changed", "none", 5, 0)]),
    "labels": (fleet(model(labels={"team": "nlp", "tier": "core"})), fleet(model(labels={"team": "vision", "on": "x"})),
               [("labels.team", "changed", "none", "nlp", "vision"), ("labels.tier", "removed", "none", "core", None),
                ("labels.on", "added", "none", None, "x")]),
    "timeouts": (fleet(model(startupTimeout="15m")), fleet(model(startupTimeout="1h", schedulingTimeout="2m")),
                 [("startupTimeout", "changed", "none", "15m", "1h"),
                  ("schedulingTimeout", "changed", "none", "1m", "2m")]),
    "a timeout taken out": (fleet(model(startupTimeout="15m")), fleet(model()),
                            [("startupTimeout", "changed", "none", "15m", "30m")]),
    "restarts": (fleet(model()), fleet(model(restart={"max": 1, "backoff": "90s"})),
                 [("restart.max", "changed", "none", 5, 1), ("restart.backoff", "changed", "none", "10s", "90s")]),
    "an update beside what runs": (
        fleet(model()), fleet(model(update={"mode": "surge", "surge": 2})),
        [("update.mode", "changed", "additive", "keep", "surge"), ("update.surge", "changed", "additive", 1, 2)]),
    "no update beside what runs": (fleet(model(update={"mode": "surge"})), fleet(model()),
                                   [("update.mode", "changed", "none", "surge", "keep")]),
    "the scope of a label": (
        fleet(model(placement={"sameLabel": "rack"})),
        fleet(model(placement={"sameLabel": {"label": "rack", "scope": "replica"}})),
        [("placement.sameLabel", "changed", "drift", "rack", {"label": "rack", "scope": "replica"})]),
    "placement": (fleet(model()), fleet(model(placement={"spread": "zone"})),
                  [("placement.spread", "added", "drift", None, "zone")]),
    "ranks on a node": (of(LEADER, WORKER), of(LEADER, WORKER, placement={"ranksPerNode": 2}),
                        [("placement.ranksPerNode", "changed", "drift", 1, 2)]),
    "memory of a card": (of(member(resources={"vram": "16Gi"})), of(member(resources={"vram": "17.5Gi"})),
                         [(f"{IN_MAIN}.resources.vram", "changed", "drift", "16Gi", "17.5Gi")]),
    "a resource where there was none": (
        of(member(resources={"gpus": 0.5})), of(member(resources={"gpus": 0.25, "cpus": "500m", "memory": "1Gi"})),
        [(f"{IN_MAIN}.resources.gpus", "changed", "drift", 0.5, 0.25),
         (f"{IN_MAIN}.resources.cpus", "changed", "drift", 0, "500m"),
         (f"{IN_MAIN}.resources.memory", "changed", "drift", "0", "1Gi")]),
    "a selector": (of(member(nodeSelector=SELECTED)), of(member(nodeSelector={"pool": "a"})),
                   [(f"{IN_MAIN}.nodeSelector.pool", "changed", "drift", "in(a, b)", "a")]),
    "a selector's keys": (
        of(member(nodeSelector={"a.io/b": "x"})), of(member(nodeSelector={"c": "x"})),
        [(f"{IN_MAIN}.nodeSelector.c", "added", "drift", None, "x"),
         (f'{IN_MAIN}.nodeSelector["a.io/b"]', "removed", "drift", "x", None)]),
    "arguments": (of(member(engine=engine(args=["--a", "1"]))), of(member(engine=engine(args=["--a", "2", "--b"]))),
                  [(f"{IN_MAIN}.engine.args", "changed", "drift", ["--a", "1"], ["--a", "2", "--b"])]),
    "a command": (of(member(engine=engine("x"))), of(member(engine=engine("y"))),
                  [(f"{IN_MAIN}.engine.command", "changed", "drift", ["serve", "x"], ["serve", "y"])]),
    "a probe of another kind": (
        of(member(engine=engine())), of(member(engine=engine(readiness={"tcp": {"port": 8000}, "period": "5s"}))),
        [(f"{IN_MAIN}.engine.readiness.tcp", "added", "drift", None, {"port": 8000}),
         (f"{IN_MAIN}.engine.readiness.period", "changed", "drift", "1s", "5s"),
         (f"{IN_MAIN}.engine.readiness.http", "removed", "drift", {"path": "/health"}, None)]),
    "a probe's command": (
        of(member(engine=engine(liveness={"exec": {"command": ["a"]}}))),
        of(member(engine=engine(liveness={"exec": {"command": ["a", "b"]}}))),
        [(f"{IN_MAIN}.engine.liveness.exec.command", "changed", "drift", ["a"], ["a", "b"])]),
    "how many workers": (of(LEADER, WORKER), of(LEADER, {**WORKER, "count": 3}),
                         [("workers.main.members[1].count", "changed", "drift", 2, 3)]),
    "one worker, not counted": (of(LEADER, member("Worker")), of(LEADER, WORKER),
                                [("workers.main.members[1].count", "changed", "drift", 1, 2)]),
    "a second kind of worker": (
        of(LEADER, WORKER), of(LEADER, WORKER, member("Worker", engine={"command": ["x"]})),
        [("workers.main.members[2]", "added", "drift", None,
          {"role": "Worker", "resources": {"gpus": 1}, "engine": {"command": ["x"]}})]),
    "copies": (fleet(model(workers=[group()])), fleet(model(workers=[group(copies=3)])),
               [("workers.main.copies", "changed", "drift", 1, 3)]),
    "a group by another name": (
        fleet(model(workers=[group("one", {"engine": {"command": ["x"]}, "resources": {"cpus": 1}})])),
        fleet(model(workers=[group("two", {"engine": {"command": ["x"]}, "resources": {"cpus": 1}})])),
        [("workers.two", "added", "drift", None,
          {"name": "two", "members": [{"engine": {"command": ["x"]}, "resources": {"cpus": 1}}]}),
         ("workers.one", "removed", "drift",
          {"name": "one", "members": [{"engine": {"command": ["x"]}, "resources": {"cpus": 1}}]}, None)]),
    "a gang instead of one member": (
        of(member(engine={"command": ["x"]})), of(member("Leader", engine={"command": ["x"]}),
                                                  member("Worker", engine={"command": ["x"]})),
        [("workers.main.members[0]", "added", "drift", None,
          {"role": "Leader", "resources": {"gpus": 1}, "engine": {"command": ["x"]}}),
         ("workers.main.members[1]", "added", "drift", None,
          {"role": "Worker", "resources": {"gpus": 1}, "engine": {"command": ["x"]}}),
         ("workers.main.members[0]", "removed", "drift",
          {"role": "Standalone", "resources": {"gpus": 1}, "engine": {"command": ["x"]}}, None)]),
}


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_reported_with_its_message_and_effect(
    side: Sides, old: str, new: str, expected: list[tuple[str, str, str, Any, Any]]
) -> None:
    differences = found(side, old, new)
    assert sorted(short(differences), key=repr) == sorted(expected, key=repr)
    assert {one.model for one in differences} == {"org/a"}


ANOTHER_ORDER = {
    "groups in another order": (fleet(model(workers=[group("a"), group("b")])),
                                fleet(model(workers=[group("b"), group("a")])),
                                ("workers", "changed", "drift", ["a", "b"], ["b", "a"])),
    "a leader below its workers": (of(LEADER, WORKER), of(WORKER, LEADER),
                                   ("workers.main.members", "changed", "drift", ["Leader", "Worker"],
                                    ["Worker", "Leader"])),
}


@pytest.mark.parametrize(("old", "new", "expected"), ANOTHER_ORDER.values(), ids=ANOTHER_ORDER)
def test_a_change_of_only_the_spec_hash_is_drift_and_says_why(
    side: Sides, old: str, new: str, expected: tuple[str, str, str, Any, Any]
) -> None:
    [difference] = found(side, old, new)
    assert short([difference]) == [expected]
    assert "the spec hash" in difference.message
    assert "the same" in difference.message


NO_CHANGE = {
    "a default written out": (fleet(model(workers=[group()])), fleet(model(workers=[group(copies=1)]))),
    "a role written out": (of({"resources": {"gpus": 1}, "engine": engine()}), of(member())),
    "a default no longer written": (of(member(resources={"gpus": 1, "cpus": 0})), of(member(resources={"gpus": 1}))),
    "a selector in another spelling": (of(member(nodeSelector={"p": "in(a, b)"})),
                                       of(member(nodeSelector={"p": "in(b,a)"}))),
    "quantities": (of(member(resources={"vram": "16Gi", "cpus": "1000m"})),
                   of(member(resources={"cpus": 1, "vram": "16384Mi"}))),
    "durations": (fleet(model(startupTimeout="15m")), fleet(model(startupTimeout="900s"))),
    "a lifecycle's default": (fleet(model()), fleet(model(priority=0, schedulingTimeout="1m", restart={"max": 5}))),
    "models in another order": (fleet(model("a"), model("b")), fleet(model("b"), model("a"))),
    "comments and quotes": (fleet(model()), fleet(model()).replace("replicas: 1", "'replicas': 1  # one")),
    "a default instead of a value": (fleet(model(priority=7)), fleet(model(), spec="defaults: {priority: 7}\n")),
"an unused default": (fleet(model(priority=7)), fleet(model(priority=7), spec="defaults: {priority: 1}\n")),
    "a null in a placement": (fleet(model()), fleet(model(placement={"spread": None}))),
}


@pytest.mark.parametrize(("old", "new"), NO_CHANGE.values(), ids=NO_CHANGE)
def test_another_spelling_is_no_difference(side: Sides, old: str, new: str) -> None:
    diff = compare(side(old, name="old"), side(new, name="new"))
    assert (diff.differences, diff.exit_code) == ([], 0)


def test_a_fleet_in_several_files_is_the_same_fleet(side: Sides) -> None:
    whole = fleet(model("a"), model("b"), spec="defaults: {priority: 3}\nnodes: [{cordon: true}]\n")
    parts = [fleet(model("b"), spec="nodes: [{cordon: true}]\n"), fleet(model("a"), spec="defaults: {priority: 3}\n")]
    assert compare(side(whole, name="old"), side(*parts, name="new")).differences == []


def test_a_fleet_that_extends_a_base_is_the_same_fleet(side: Sides, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(fleet(model("a", replicas=1), model("b")))
    overlay = ("apiVersion: fleetctl/v1\nkind: Fleet\nextends: ../base.yaml\nmetadata: {name: lab}\n"
               "spec:\n  models:\n  - {key: a, replicas: 3}\n")
    new = side(overlay, name="new")
    assert compare(side(fleet(model("a", replicas=3), model("b")), name="old"), new).differences == []
    [raised] = compare(side(fleet(model("a", replicas=2), model("b")), name="older"), new).differences
    assert raised.new_source is not None
    assert (raised.new_source.file, raised.new_source.line) == (str(tmp_path / "new" / "0.yaml"), 7)


def test_a_changed_default_is_a_difference_of_every_affected_model_at_its_own_line(side: Sides) -> None:
    models = (model("a"), model("b", priority=1), model("c"))
    old, new = (fleet(*models, spec=f"defaults: {{priority: {value}}}\n") for value in (3, 4))
    differences = found(side, old, new)
    assert [(one.model, one.path, one.old, one.new) for one in differences] == [
        ("a", "priority", 3, 4), ("c", "priority", 3, 4)]
    assert {(one.new_source.line, one.new_source.column) for one in differences if one.new_source} == {(5, 24)}


def test_both_places_point_at_the_values(side: Sides) -> None:
    old = of(member(engine=engine(args=["--a", "1", "--b"])), replicas=2)
    new = "# one more line\n" + of(member(engine=engine(args=["--a", "2", "--b"])), replicas=3)
    for difference in found(side, old, new):
        for place, text, shift in ((difference.old_source, old, 0), (difference.new_source, new, 1)):
            assert place is not None
            line = text.splitlines()[place.line - 1]
            wanted = {"replicas": str(2 + shift), f"{IN_MAIN}.engine.args": f'"{1 + shift}"'}[difference.path]
            assert line[place.column - 1:].startswith(wanted)


def test_an_unset_value_points_at_the_nearest_key(side: Sides) -> None:
    [added] = found(side, fleet(model()), fleet(model(priority=5)))
    assert added.old_source is not None
    assert added.old_source.line == 6  # the model itself
    [removed] = found(side, of(member(resources={"gpus": 1, "cpus": 1})), of(member(resources={"gpus": 1})))
    assert removed.new_source is not None
    text = of(member(resources={"gpus": 1})).splitlines()[removed.new_source.line - 1]
    assert text[removed.new_source.column - 1:].startswith('"resources"')


@pytest.mark.parametrize(("old", "new", "shown"), [
    ({"TOKEN": "one-secret"}, {"TOKEN": "two-secret"}, ("env.TOKEN", "changed", "***", "***")),
    ({}, {"TOKEN": "one-secret"}, ("env", "changed", {}, {"TOKEN": "***"})),
    ({"TOKEN": "one-secret"}, {}, ("env", "changed", {"TOKEN": "***"}, {})),
    ({"TOKEN": "one-secret"}, {"TOKEN": {"fromNode": "X"}}, ("env.TOKEN", "changed", "***", {"fromNode": "X"})),
    ({"TOKEN": {"fromNode": "X"}}, {"TOKEN": {"fromNode": "Y"}},
     ("env.TOKEN", "changed", {"fromNode": "X"}, {"fromNode": "Y"})),
    (None, {"TOKEN": "one-secret"}, ("env", "added", None, {"TOKEN": "***"})),
])
def test_only_the_names_of_an_environment_are_shown(
    side: Sides, old: dict[str, Any] | None, new: dict[str, Any] | None, shown: tuple[Any, ...]
) -> None:
    texts = [of(member(engine={"command": ["x"], **({} if env is None else {"env": env})})) for env in (old, new)]
    [difference] = found(side, *texts)
    path, kind, before, after = shown
    assert (difference.path, difference.kind) == (f"{IN_MAIN}.engine.{path}", kind)
    assert (difference.old, difference.new) == (before, after)
    assert "secret" not in difference.model_dump_json()


def test_a_name_with_underscores_is_compared_like_any_other(side: Sides) -> None:
    old, new = (of(member(engine=engine(env={"__PRIVATE": value}))) for value in ("a", "b"))
    assert [one.path for one in found(side, old, new)] == [f"{IN_MAIN}.engine.env.__PRIVATE"]


def test_masked_values_are_never_reported_as_unchanged(side: Sides) -> None:
    [difference] = found(side, of(member(engine=engine())),
                         of(member(engine=engine(env={"TOKEN": "x", "FROM": {"fromNode": "HF_TOKEN"}}))))
    assert (difference.old, difference.new) == ("***", "***")
    assert "the value changed" in difference.message


def test_whole_groups_and_members_hide_their_environment_too(side: Sides) -> None:
    differences = found(side, fleet(model(workers=[group("one")])), fleet(model(workers=[group("two"), group("x")])))
    assert len(differences) == 3
    assert all(SECRET not in one.model_dump_json() for one in differences)
    assert all("***" in one.model_dump_json() for one in differences)


def test_added_and_removed_models(side: Sides) -> None:
    came, went = found(side, fleet(model("old", replicas=2)), fleet(model("new", replicas=3)))
    assert short([came, went]) == [
        ("", "added", "additive", None, "3 replicas of 1 GPU"), ("", "removed", "held", "2 replicas of 1 GPU", None)]
    assert came.message == "a new model: up to 3 replicas may be created"
    assert went.message == "its replicas become unmanaged, keep running and keep their resources; nothing is removed"
    assert (came.old_source, went.new_source) == (None, None)


def test_a_new_model_without_a_target_creates_nothing(side: Sides) -> None:
    [came] = found(side, fleet(model("a")), fleet(model("a"), model("b", replicas=0)))
    assert (came.effect, came.message) == ("none", "a new model without a target: nothing is created")


def test_another_key_for_the_same_spec_looks_like_a_new_name(side: Sides) -> None:
    workers = [group()]
    old = fleet(model("a", workers=workers, replicas=2), model("b"))
    new = fleet(model("b"), model("z", workers=workers, replicas=2))
    came, went = found(side, old, new)
    assert (came.model, came.effect, went.model, went.effect) == ("z", "additive", "a", "held")
    assert "looks like a new name for a" in came.message
    assert "2 replicas may be created beside the old ones" in came.message
    assert "may have been renamed to z" in went.message


def test_models_are_in_the_new_order_and_removed_ones_last(side: Sides) -> None:
    old = fleet(*(model(key) for key in "xabc"))
    new = fleet(*(model(key, replicas=2) for key in "cnab"))
    assert [one.model for one in found(side, old, new)] == ["c", "n", "a", "b", "x"]


def test_the_summary_counts_models_replicas_gpus_and_effects(side: Sides) -> None:
    gang = group("main", member("Leader", resources={"gpus": 8}), member("Worker", count=3, resources={"gpus": 8}),
                 copies=2)
    diff = compare(side(fleet(model("a", replicas=2), model("c")), name="old"),
                   side(fleet(model("a", replicas=1), model("b", replicas=3, workers=[gang])), name="new"))
    assert diff.before.model_dump() == {"models": 2, "replicas": 3, "gpus": 30_000}
    assert diff.after.model_dump() == {"models": 2, "replicas": 4, "gpus": (1 + 3 * 64) * 10_000}
    assert diff.summary == {"additive": 1, "none": 0, "drift": 0, "held": 2}
    assert (diff.fleet, diff.exit_code) == ("lab", 2)


def test_with_surge_a_changed_spec_says_how_many_replicas_are_created(side: Sides) -> None:
    def written(command: str) -> str:
        return of(member(engine=engine(command)), replicas=4, update={"mode": "surge"})

    [difference] = found(side, written("x"), written("y"))
    assert (difference.effect, difference.message) == ("drift", (
        "update: 4 replicas will be created beside the running ones, 1 at a time; the old ones stay until they "
        "are evicted by name"))


def test_a_reordering_is_reported_as_such_also_with_surge(side: Sides) -> None:
    def written(*names: str) -> str:
        return fleet(model(workers=[group(name) for name in names], replicas=2, update={"mode": "surge"}))

    [difference] = found(side, written("a", "b"), written("b", "a"))
    assert change_text(difference) == "workers: … b -> b … (only the order)"
    assert "created beside" in difference.message


def test_secrets_in_arguments_are_never_shown(side: Sides) -> None:
    def with_args(*args: str, command: tuple[str, ...] = ("serve", "m")) -> str:
        return of(member(engine=engine(command=list(command), args=list(args))))

    old = with_args("--api-key", SECRET, "--port", "1")
    [difference] = found(side, old, with_args("--api-key", "x" + SECRET, "--port", "1"))
    assert (difference.path, difference.old, difference.new) == (
        f"{IN_MAIN}.engine.args", ["--api-key", "***", "--port", "1"], ["--api-key", "***(changed)", "--port", "1"])
    assert change_text(difference) == f"{IN_MAIN}.engine.args: --api-key *** … -> --api-key ***(changed) …"
    [difference] = found(side, old, with_args("--api-key", SECRET, "--port", "2"))
    assert change_text(difference) == f"{IN_MAIN}.engine.args: … --port 1 -> … --port 2"
    [difference] = found(side, old, with_args("--api-key", "$(API_KEY)", "--port", "1"))
    assert change_text(difference) == f"{IN_MAIN}.engine.args: --api-key *** … -> --api-key $(API_KEY) …"
    every = found(side, old, with_args(SECRET, "--port", "1", command=("serve", "m", "--token")))
    assert SECRET not in repr(every)
    assert [one.new for one in every if one.path.endswith("args")] == [["***", "--port", "1"]]


def test_another_secret_in_the_path_of_a_probe_is_a_change_that_shows_none(side: Sides) -> None:
    def with_path(path: str) -> str:
        return of(member(engine=engine(readiness={"http": {"path": path}})))

    [difference] = found(side, with_path("/up?api_key=" + SECRET), with_path("/up?api_key=x" + SECRET))
    assert (difference.old, difference.new) == ("/up?api_key=***", "/up?api_key=***(changed)")
