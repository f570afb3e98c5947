"""Variants of a model in the fleet file: what each has of its own, what it shares, what shapes and bases give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.documents.fleet import Spread
from fleetctl.fleetfile.extends import join
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.render.merged_fleet import render_fleet_yaml

from .fleets import HEAD, loaded
from .memory_tree import load

WORKERS = "[{{name: main, members: [{{resources: {{gpus: {gpus}}}, engine: {{command: [serve]}}}}]}}]"
ONE, TWO = WORKERS.format(gpus=1), WORKERS.format(gpus=2)


def fleet(*variants: str, spec: str = "", model: str = "") -> str:
    """A fleet of one model, `m`, with these variants, each a mapping as text."""
    return (f"{HEAD}{spec}  models:\n  - key: m\n    replicas: 3\n{model}    variants:\n"
            + "".join(f"    - {variant}\n" for variant in variants))


def only(fleet: ResolvedFleet) -> ResolvedModel:
    assert len(fleet.models) == 1
    return fleet.models[0]


def test_each_variant_has_hashes_limits_and_a_place_of_its_own_and_the_rest_of_its_model(tmp_path: Path) -> None:
    model = only(loaded(tmp_path, fleet(f"{{name: h100, workers: {ONE}, max: 4}}",
                                        f"{{name: a100, workers: {TWO}, min: 1}}",
                                        model="    priority: 7\n    serving: {name: chat}\n")))
    first, second = model.variants
    assert [(one.variant, one.least, one.most, one.source.line) for one in model.variants] == [
        ("h100", 0, 4, 11), ("a100", 1, None, 12)]
    assert first.spec_hash != second.spec_hash
    assert {(one.key, one.replicas, one.priority, one.serving.name) for one in model.variants} == {("m", 3, 7, "chat")}
    assert (model.spec_hash, model.workers, model.variant, model.source.line) == (first.spec_hash, first.workers, "", 6)
    assert model.alternatives == model.variants


def test_a_variant_has_the_spec_hash_of_a_model_with_its_workers_and_placement(tmp_path: Path) -> None:
    variants = only(loaded(tmp_path, fleet(
        f"{{name: a, workers: {ONE}}}",
        f"{{name: b, workers: {ONE}, placement: {{spread: {{label: rack, maxPerValue: 2}}}}}}",
        spec="  defaults: {placement: {spread: rack}}\n")))
    plain = only(loaded(
        tmp_path, f"{HEAD}  models: [{{key: m, replicas: 1, workers: {ONE}, placement: {{spread: rack}}}}]\n"))
    assert variants.variants[0].spec_hash == plain.spec_hash
    assert [one.placement.spread for one in variants.variants] == ["rack", Spread(label="rack", maxPerValue=2)]
    assert variants.has_spec(plain.spec_hash)
    assert variants.variant_of(plain.spec_hash, None) == 0
    assert variants.variant_of("other", "b") == 1


def test_the_placement_of_the_model_is_merged_under_that_of_a_shape_and_of_the_variant(tmp_path: Path) -> None:
    model = only(loaded(tmp_path, fleet(
        "{name: a, shape: one}", "{name: b, shape: one, placement: {sameLabel: host}}", f"{{name: c, workers: {ONE}}}",
        spec=f"  shapes: {{one: {{placement: {{sameLabel: zone}}, workers: {TWO}}}}}\n",
        model="    placement: {sameLabel: rack}\n")))
    assert [one.placement.same_label for one in model.variants] == ["zone", "host", "rack"]


def test_a_shape_gives_a_variant_its_workers_placement_and_numbers_alone(tmp_path: Path) -> None:
    shape = f"{{priority: 9, startupTimeout: 9m, model: {{parameters: 8B}}, workers: {ONE}}}"
    change = "{name: one, workers: [{name: main, members: [{resources: {gpus: 2}}]}]}"
    model = only(loaded(tmp_path, fleet("{name: a, shape: one}", f"{{name: b, shape: {change}}}",
                                        spec=f"  shapes: {{one: {shape}}}\n", model="    startupTimeout: 3m\n")))
    assert [(one.priority, one.startup_timeout_s) for one in model.variants] == [(0, 180)] * 2
    assert [one.workers[0].members[0].resources.gpus for one in model.variants] == [10_000, 20_000]
    assert all(one.description is not None for one in model.variants)


def test_a_variant_is_described_by_its_own_numbers_else_by_those_of_the_model(tmp_path: Path) -> None:
    model = only(loaded(tmp_path, fleet(
        f"{{name: a, workers: {ONE}, model: {{parameters: 8B, weights: int4}}}}", f"{{name: b, workers: {TWO}}}",
        model="    model: {parameters: 8B}\n")))
    four_bits, half = (one.description for one in model.variants)
    assert None not in (four_bits, half)
    assert four_bits != half
    assert model.description == four_bits


def test_a_file_changes_one_variant_of_the_file_that_it_extends() -> None:
    base = fleet(f"{{name: a, workers: {ONE}, max: 4}}", f"{{name: b, workers: {TWO}}}")
    over = HEAD.replace("metadata", "extends: base.yaml\nmetadata") + (
        "  models:\n  - {key: m, variants: [{name: b, min: 1}, {name: a, workers: [{name: main, members: "
        "[{engine: {args: [--fast]}}]}]}]}\n")
    model = only(load({"base.yaml": base, "over.yaml": over}, "over.yaml"))
    assert [(one.variant, one.least, one.most) for one in model.variants] == [("a", 0, 4), ("b", 1, None)]
    assert model.variants[0].workers[0].members[0].engine.args == ["--fast"]


@pytest.mark.parametrize(("base", "over", "names"), [
    (f"workers: {ONE}", f"variants: [{{name: a, workers: {ONE}}}]", ["a"]),
    (f"variants: [{{name: a, workers: {ONE}}}]", f"workers: {TWO}", [""]),
])
def test_variants_replace_workers_of_a_base_and_workers_its_variants(base: str, over: str, names: list[str]) -> None:
    model = only(load({
        "base.yaml": f"{HEAD}  models: [{{key: m, replicas: 2, {base}}}]\n",
        "over.yaml": HEAD.replace("metadata", "extends: base.yaml\nmetadata") + f"  models: [{{key: m, {over}}}]\n",
    }, "over.yaml"))
    assert [one.variant for one in model.alternatives] == names


def test_a_change_of_what_variants_share_reaches_each_of_them(tmp_path: Path) -> None:
    fleet_of = loaded(tmp_path, fleet(f"{{name: a, workers: {ONE}, max: 4}}", f"{{name: b, workers: {TWO}, min: 1}}",
))
    model = only(fleet_of).with_changes(replicas=9, surge=2)
    assert {(one.replicas, one.surge) for one in (model, *model.variants)} == {(9, 2)}
    assert [(one.variant, one.least, one.most) for one in model.variants] == [("a", 0, 4), ("b", 1, None)]
    assert (model.variant, model.least, model.most, model.source) == ("", 0, None, only(fleet_of).source)
    changed = fleet_of.only_creating({"m": model}).models[0]
    assert {(one.replicas, one.cold, one.reload) for one in (changed, *changed.variants)} == {(9, None, ())}


def test_a_variant_that_no_card_can_hold_is_a_warning_at_it_and_its_secrets_are_masked(tmp_path: Path) -> None:
    engine = "{command: [vllm, serve, m], env: {TOKEN: hunter2}}"
    serve = f"[{{name: main, members: [{{resources: {{gpus: 1}}, engine: {engine}}}]}}]"
    text = fleet(f"{{name: small, model: {{parameters: 1B}}, workers: {serve}}}",
                 f"{{name: large, workers: {serve.replace('gpus: 1', 'gpus: 1, vram: 9Gi')}}}",
                 model="    model: {parameters: 400B}\n")
    (tmp_path / "fleet.yaml").write_text(text)
    loaded = inspect_fleet([str(tmp_path / "fleet.yaml")])
    [too_large] = [problem for problem in loaded.problems if problem.code == "FL063"]
    assert (too_large.line, too_large.path) == (11, "spec.models[0].variants[1]")
    assert [(problem.line, problem.code) for problem in loaded.problems if problem.code == "FL070"] == [
        (10, "FL070"), (11, "FL070")]
    shown = render_fleet_yaml(join(loaded.documents), origins=True, show_env=False)
    assert "hunter2" not in shown
    assert shown.count("***") == 2


@pytest.mark.parametrize(("quota", "found"), [
    ("replicas: 3", []),
    ("replicas: 2", ["the variants of m have a min of 3 replicas in all, and this quota allows 2"]),
    ("gpus: 5", []), ("gpus: 4", ["the variants of m have a min of 5 GPUs in all, and this quota allows 4"]),
    ("selector: {team: y}, replicas: 1", []), ("replicas: 2, gpus: 4", ["3 replicas", "5 GPUs"])])
def test_a_quota_below_what_minimums_ask_for_is_a_warning(tmp_path: Path, quota: str, found: list[str]) -> None:
    other = "  - {key: n, replicas: 9, labels: {team: y}, workers: " + ONE + "}\n"
    text = fleet(f"{{name: a, workers: {ONE}, min: 1}}", f"{{name: b, workers: {TWO}, min: 2}}",
                 spec=f"  policy: {{quotas: [{{{quota}}}]}}\n", model="    labels: {team: x}\n") + other
    (tmp_path / "f.yaml").write_text(text)
    inspected = inspect_fleet([str(tmp_path / "f.yaml")])
    assert [problem.code for problem in inspected.problems] == ["FL076"] * len(found)
    assert all(part in problem.message for part, problem in zip(found, inspected.problems, strict=True))
    assert inspected.sound().warnings == inspected.problems
