from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.fleetfile.resolved import hash_of_shape, shape_as_set, spec_document

from .fleets import fleet, loaded, model

GANG = ("[{name: main, copies: 2, members: [{role: Leader, resources: {gpus: 8, vram: 120Gi}, engine: {command: [a]}}, "
        "{role: Worker, engine: {command: [b], env: {T: {fromNode: X}}, readiness: {tcp: {}, period: 1500ms}}}]}]")


def hash_of(tmp_path: Path, text: str) -> str:
    return loaded(tmp_path, text).models[0].spec_hash


def test_defaults_apply_to_every_model_and_its_own_values_win(tmp_path: Path) -> None:
    spec = "defaults: {priority: 5, startupTimeout: 15m, restart: {max: 1, backoff: 1m}, placement: {spread: zone}}\n"
    plain, own = loaded(tmp_path, fleet(
        model("plain"), model("own", priority="0", restart="{max: 9}", placement="{sameLabel: rack}"), spec=spec,
    )).models
    assert (plain.priority, plain.startup_timeout_s, plain.scheduling_timeout_s) == (5, 900, 60)
    assert (plain.restart.max, plain.restart.backoff, plain.placement.spread) == (1, 60, "zone")
    assert (own.priority, own.restart.max, own.restart.backoff) == (0, 9, 60)
    assert (own.placement.same_label, own.placement.spread) == ("rack", "zone")


def test_a_surge_only_counts_in_mode_surge_and_may_come_from_defaults(tmp_path: Path) -> None:
    models = fleet(model("plain"), model("own", update="{surge: 3}"), model("kept", update="{mode: keep}"),
                   spec="defaults: {update: {mode: surge}}\n")
    assert [one.surge for one in loaded(tmp_path, models).models] == [1, 3, 0]
    assert [one.surge for one in loaded(tmp_path, fleet(model(update="{surge: 3}"))).models] == [0]


def test_defaults_apply_to_models_of_other_files(tmp_path: Path) -> None:
    spec = "defaults: {priority: 7}\ncluster: {address: auto}\n"
    merged = loaded(tmp_path, fleet(model("a")), fleet(model("b"), spec=spec))
    assert [one.priority for one in merged.models] == [7, 7]
    assert merged.cluster.address == "auto"


def test_a_model_may_reset_a_default_with_null(tmp_path: Path) -> None:
    spec = "defaults: {placement: {spread: zone}}\n"
    taken_back = fleet(model(placement="{spread: null}"), spec=spec)
    assert loaded(tmp_path, taken_back).models[0].placement.spread is None
    assert hash_of(tmp_path, taken_back) == hash_of(tmp_path, fleet(model()))


@pytest.mark.parametrize("other", [
    {"replicas": "7"}, {"priority": "3"}, {"startupTimeout": "1h"}, {"schedulingTimeout": "1m"},
    {"restart": "{max: 0}"}, {"placement": "{}"}, {"update": "{mode: surge, surge: 2}"},
])
def test_the_spec_hash_ignores_fields_that_do_not_shape_a_replica(tmp_path: Path, other: dict[str, str]) -> None:
    assert hash_of(tmp_path, fleet(model(**other))) == hash_of(tmp_path, fleet(model()))


def test_the_spec_hash_ignores_how_an_engine_is_ended(tmp_path: Path) -> None:
    """All of its forms: another grace period alone must not make a fleet drift."""
    texts = [GANG, GANG.replace("command: [a]", "command: [a], stop: {grace: 5m, signal: SIGINT}")]
    assert texts[0] != texts[1]
    first, second = (loaded(tmp_path, fleet(model(workers=text))).models[0] for text in texts)
    assert (first.spec_hash, first.former_hash, first.engine_hash) == (
        second.spec_hash, second.former_hash, second.engine_hash)
    weights = "weights: {from: [{path: /m}], index: " + "a" * 64 + "}, "
    hashes = [loaded(tmp_path, fleet(model(workers=text.replace("role: Leader, ", f"role: Leader, {weights}"))))
              .models[0].engine_hash for text in texts]
    assert hashes[0] == hashes[1] is not None


def test_the_spec_hash_ignores_key_order_spelling_position_and_policies(tmp_path: Path) -> None:
    one = ("[{name: main, members: [{resources: {gpus: 1, vram: 16Gi, cpus: 0.5}, "
           "engine: {command: [a], env: {A: b, C: d}}}]}]")
    same = ("[{members: [{engine: {env: {C: d, A: b}, command: ['a']}, "
            "resources: {cpus: 500m, vram: 16384Mi, gpus: 1.0}}], name: main}]")
    policies = "# moved\nnodes: [{reserve: {vram: 1Gi}}]\ncluster: {namespace: x}\n"
    assert hash_of(tmp_path, fleet(model(workers=one))) == hash_of(tmp_path, fleet(model(workers=same), spec=policies))


@pytest.mark.parametrize(("old", "new"), [
    ("gpus: 8", "gpus: 4"), ("command: [a]", "command: [c]"), ("fromNode: X", "fromNode: Y"),
    ("copies: 2", "copies: 3"), ("1500ms", "2s"),
])
def test_the_spec_hash_covers_the_fields_that_shape_a_replica(tmp_path: Path, old: str, new: str) -> None:
    before, after = fleet(model(workers=GANG)), fleet(model(workers=GANG.replace(old, new)))
    assert before != after
    assert hash_of(tmp_path, before) != hash_of(tmp_path, after)


@pytest.mark.parametrize(("one", "same"), [
    ('nodeSelector: {pool: "in(l4,a100)"}', 'nodeSelector: {pool: "in(a100, l4)"}'),
    ("nodeSelector: {pool: in(l4)}", "nodeSelector: {pool: l4}"),
    ('nodeSelector: {pool: "!in(l4,l4)"}', 'nodeSelector: {pool: "!l4"}'),
    ("role: Standalone", "nodeSelector: {}"),
    ("resources: {cpus: 1}", "resources: {cpus: 1, gpus: 0, vram: 0, memory: 0}"),
    ("engine: {command: [a]}", "engine: {command: [a], args: [], env: {}}"),
    ("engine: {command: [a], readiness: {http: {}}}",
     "engine: {command: [a], readiness: {http: {path: /}, period: 1s, timeout: 5s, failureThreshold: 3}}"),
])
def test_the_spec_hash_ignores_the_spelling_of_selectors_and_defaults_that_are_written_out(
    tmp_path: Path, one: str, same: str,
) -> None:
    rest = {"resources": "{cpus: 2}", "engine": "{command: [b]}"}
    texts = [", ".join([text, *(f"{key}: {value}" for key, value in rest.items() if f"{key}:" not in text)])
             for text in (one, same)]
    hashes = [hash_of(tmp_path, fleet(model(workers=f"[{{name: main, members: [{{{text}}}]}}]"))) for text in texts]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(("probe", "running", "spelled"), [
    ("readiness: {http: {path: /h}}", "3538ccdfdb29e09b", "3538ccdfdb29e09b"),
    ("readiness: {http: {path: /h}, period: 1s}", "3538ccdfdb29e09b", "87c18962bd48c91c"),
    ("readiness: {http: {path: /h}, period: 10s}", "dfdf1fa48a324fa0", "dfdf1fa48a324fa0"),
    ("liveness: {http: {path: /h}}", "d125f95f17bc1baf", "d125f95f17bc1baf"),
    ("liveness: {http: {path: /h}, period: 1s}", "d125f95f17bc1baf", "30bd1531d2aa8853"),
    ("liveness: {http: {path: /h}, period: 10s}", "f3c08666d6493428", "f3c08666d6493428"),
])
def test_the_longer_default_period_of_liveness_changes_no_hash(
    tmp_path: Path, probe: str, running: str, spelled: str
) -> None:
    """The hashes are those of the release in which the default of both probes was 1 s."""
    engine = f"[{{name: main, members: [{{resources: {{cpus: 1}}, engine: {{command: [a], {probe}}}}}]}}]"
    found = loaded(tmp_path, fleet(model(workers=engine))).models[0]
    assert (found.spec_hash, found.former_hash) == (running, spelled)
    assert hash_of_shape(shape_as_set(found.workers, found.placement)) == running


def test_liveness_is_probed_less_often_than_readiness_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    def engine_with(probes: str) -> Any:
        engine = f"[{{name: main, members: [{{resources: {{cpus: 1}}, engine: {{command: [a], {probes}}}}}]}}]"
        document = spec_document(loaded(tmp_path, fleet(model(workers=engine))).models[0])
        return document["workers"][0]["members"][0]["engine"]

    engines = [engine_with("readiness: {tcp: {}}, liveness: {tcp: {}}"),
               engine_with("readiness: {tcp: {}, period: 2s}, liveness: {tcp: {}, period: 3s}")]
    assert [[engine[kind]["period"] for kind in ("readiness", "liveness")] for engine in engines] == [[1, 10], [2, 3]]
    assert engines[0]["liveness"] == {"tcp": {}, "period": 10, "timeout": 5, "failureThreshold": 3}


def test_a_startup_timeout_is_the_default_only_if_no_file_sets_it(tmp_path: Path) -> None:
    def by_default(*models: str, spec: str = "") -> list[bool]:
        return [one.startup_by_default for one in loaded(tmp_path, fleet(*models, spec=spec)).models]

    assert by_default(model("a"), model("b", startupTimeout="30m")) == [True, False]
    assert by_default(model("a"), spec="defaults: {startupTimeout: 30m}\n") == [False]
    assert by_default(model("a"), spec="defaults: {priority: 5}\n") == [True]


def test_the_spec_hash_ignores_counts_of_one_in_a_gang(tmp_path: Path) -> None:
    spelled = GANG.replace("copies: 2, ", "copies: 1, ").replace("role: Worker", "role: Worker, count: 1")
    hashes = [hash_of(tmp_path, fleet(model(workers=workers, placement=placement))) for workers, placement in (
        (spelled, "{ranksPerNode: 1}"), (GANG.replace("copies: 2, ", ""), "{}"))]
    assert hashes[0] == hashes[1]


def test_a_replica_with_the_former_hash_of_the_same_file_is_current(tmp_path: Path) -> None:
    # a replica created by an older release has the hash of the spelling
    spelled = GANG.replace("engine: {command: [a]}",
                           'nodeSelector: {pool: "in(l4,a100)"}, engine: {command: [a], args: []}')
    former = loaded(tmp_path, fleet(model(workers=spelled, placement="{ranksPerNode: 1}"))).models[0]
    changed = loaded(tmp_path, fleet(model(workers=spelled.replace("[a]", "[c]")))).models[0]
    assert former.has_spec("98c640460af0c3c2")
    assert former.has_spec(former.spec_hash)
    assert not changed.has_spec("98c640460af0c3c2")


def test_spread_as_text_keeps_its_hash_and_with_a_limit_it_is_a_spec_of_its_own(tmp_path: Path) -> None:
    text = loaded(tmp_path, fleet(model(placement="{spread: zone}"))).models[0]
    as_set = shape_as_set(text.workers, text.placement)
    assert as_set["placement"] == {"spread": "zone"}
    assert text.spec_hash == hash_of_shape(as_set)
    limited = [hash_of(tmp_path, fleet(model(placement=placement))) for placement in (
        "{spread: {label: zone, maxPerValue: 2}}", "{spread: {maxPerValue: 2, label: zone}}",
        "{spread: {label: zone, maxPerValue: 1}}", "{spread: {label: rack, maxPerValue: 2}}")]
    assert limited[0] == limited[1]
    assert len({text.spec_hash, *limited}) == 4


def test_the_spec_hash_covers_placement_defaults(tmp_path: Path) -> None:
    under = fleet(model(), spec="defaults: {placement: {spread: zone}}\n")
    own = fleet(model(placement="{spread: zone}"))
    assert hash_of(tmp_path, under) == hash_of(tmp_path, own) != hash_of(tmp_path, fleet(model()))


def test_weights_are_part_of_the_spec_and_a_member_without_any_keeps_its_hash(tmp_path: Path) -> None:
    def hash_with(weights: str) -> str:
        member = f"{{resources: {{gpus: 1}}, engine: {{command: [a]}}{weights}}}"
        return hash_of(tmp_path, fleet(model(workers=f"[{{name: main, members: [{member}]}}]")))

    def some(index: str = "a", rule: str = "{match: q}", origin: str = "{path: /m}") -> str:
        return f", weights: {{from: [{origin}], index: {index * 64}, view: {{shard: {{rules: [{rule}]}}}}}}"

    assert hash_with("") == hash_with(", weights: null") == "146ea46a644ebad1"  # the hash of the release before weights
    assert hash_with(some()) == hash_with(some(rule="{match: q, dim: 0}"))
    assert hash_with(some()) == hash_with(some(origin="{http: http://files/m}, {path: /m}"))
    assert len({hash_with(one) for one in ("", some(), some("b"), some(rule="{match: q, dim: 1}"))}) == 4


def test_the_spec_hash_of_a_release_never_changes(tmp_path: Path) -> None:
    # another value would report every running replica of every user as drift
    assert hash_of(tmp_path, fleet(model(workers=GANG, placement="{sameLabel: rack}"))) == "af7cf7aa1156f0c0"


def test_same_label_as_a_mapping_with_only_a_label_equals_the_text(tmp_path: Path) -> None:
    text, *mappings = (hash_of(tmp_path, fleet(model(workers=GANG, placement=f"{{sameLabel: {same_label}}}")))
                       for same_label in ("rack", "{label: rack}", "{label: rack, scope: gang}",
                                          "{label: rack, scope: replica}"))
    assert mappings[:2] == [text, text] != mappings[1:]


def test_the_spec_document_has_every_default_as_integers_and_seconds(tmp_path: Path) -> None:
    document = spec_document(loaded(tmp_path, fleet(model(workers=GANG, placement="{sameLabel: rack}"))).models[0])
    leader, worker = document["workers"][0]["members"]
    assert document["placement"] == {"sameLabel": "rack", "ranksPerNode": 1}
    assert document["workers"][0]["copies"] == 2
    assert leader["resources"] == {"gpus": 80_000, "vram": 120 << 30, "cpus": 0, "memory": 0}
    assert "count" not in leader
    assert worker["count"] == 1
    assert worker["engine"] == {
        "command": ["b"], "args": [], "env": {"T": {"fromNode": "X"}},
        "readiness": {"tcp": {}, "period": 1.5, "timeout": 5, "failureThreshold": 3},
    }


def test_the_spec_document_has_the_engine_unchanged(tmp_path: Path) -> None:
    resolved = loaded(tmp_path, fleet(model(workers=GANG))).models[0]
    shown = [member["engine"] for member in spec_document(resolved)["workers"][0]["members"]]
    assert shown == [member.engine.as_json() for member in resolved.workers[0].members]


def test_a_model_with_a_merge_key_has_its_own_place(tmp_path: Path) -> None:
    text = fleet("  - &base\n" + model("a").replace("  - key", "    key", 1), "  - {<<: *base, key: b}\n")
    assert [(one.key, one.source.line, one.source.column) for one in loaded(tmp_path, text).models] == [
        ("a", 6, 5), ("b", 13, 5)]
