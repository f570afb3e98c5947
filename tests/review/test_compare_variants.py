"""Differences between models with variants: what is added, removed, renamed, reordered and changed in one of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from diff_strategies import FLEETS, Json, as_yaml
from fleet_texts import engine, fleet, group, member, model
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.difference import Difference, Revision
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.render.report.of_diff import diff_report
from fleetctl.review.compare import compare
from fleetctl.review.inputs import Side

Sides = Callable[..., Side]
ONE, TWO = (group("main", member(resources={"gpus": gpus})) for gpus in (1, 2))
THREE = group("main", member(resources={"gpus": 3}))
IN_MAIN = "workers.main.members[0]"


def variant(name: str, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "workers": list(groups), **more}


def of(*variants: dict[str, Any], **more: Any) -> str:
    return fleet(model(variants=list(variants), **more))


def found(side: Sides, old: str, new: str) -> list[Difference]:
    return compare(side(old, name="old"), side(new, name="new")).differences


def short(differences: list[Difference]) -> list[tuple[str, str, str]]:
    return [(one.path, one.kind, one.effect) for one in differences]


A, B, C = variant("a", ONE), variant("b", TWO), variant("c", THREE)


def test_equal_variants_in_another_spelling_are_no_difference(side: Sides) -> None:
    assert found(side, of(A, B), of(variant("a", {**ONE, "copies": 1}, min=0), B)) == []


def test_a_variant_that_is_added_or_removed_is_one_difference(side: Sides) -> None:
    [added] = found(side, of(A), of(A, variant("b", TWO, min=1, max=3)))
    assert short([added]) == [("variants.b", "added", "additive")]
    assert (added.old, added.new) == (None, "b, 2 GPUs, min 1, max 3")
    assert added.message == ("a new variant, number 2 in the order of preference: new replicas may be of it, and at "
                             "least 1 will be; running replicas are not affected")
    [removed] = found(side, of(A, B), of(A))
    assert short([removed]) == [("variants.b", "removed", "drift")]
    assert removed.message == ("running replicas of variant b are kept, count toward the target, and are reported as "
                               "drift")


def test_a_changed_spec_of_one_variant_is_a_difference_of_it_alone(side: Sides) -> None:
    changed = variant("b", group("main", member(resources={"gpus": 2}, engine=engine(args=["--fast"]))))
    [difference] = found(side, of(A, B), of(A, changed))
    assert short([difference]) == [(f"variants.b.{IN_MAIN}.engine.args", "changed", "drift")]
    assert difference.new_source is not None
    surge: dict[str, Any] = {"update": {"mode": "surge"}}
    [difference] = found(side, of(A, B, **surge), of(A, changed, **surge))
    assert "as many replicas as run of this variant" in difference.message


def test_another_min_or_max_is_a_difference_without_an_effect_on_what_runs(side: Sides) -> None:
    assert short(found(side, of(A, B), of(variant("a", ONE, max=4), variant("b", TWO, min=1)))) == [
        ("variants.a.max", "added", "held"), ("variants.b.min", "changed", "additive")]
    assert short(found(side, of(variant("a", ONE, max=4), B), of(variant("a", ONE, max=5), B))) == [
        ("variants.a.max", "changed", "additive")]
    assert short(found(side, of(variant("a", ONE, max=4), B), of(A, B))) == [("variants.a.max", "removed", "additive")]


def test_another_weight_affects_no_running_replica_and_is_told_from_none(side: Sides) -> None:
    heavy = variant("a", ONE, weight=3)
    [added] = found(side, of(A, B), of(heavy, B))
    assert (*short([added]), added.old, added.new) == (("variants.a.weight", "added", "none"), None, 3)
    assert short(found(side, of(heavy, B), of(variant("a", ONE, weight=4), B))) == [
        ("variants.a.weight", "changed", "none")]
    [new] = found(side, of(B), of(B, heavy))
    assert new.new == "a, 1 GPU, weight 3"


def test_another_order_of_preference_affects_no_running_replica(side: Sides) -> None:
    [difference] = found(side, of(A, B, C), of(C, A, B))
    assert short([difference]) == [("variants", "changed", "none")]
    assert (difference.old, difference.new) == (["a", "b", "c"], ["c", "a", "b"])


def test_another_name_of_the_same_spec_makes_nothing_outdated(side: Sides) -> None:
    [difference] = found(side, of(A, B), of(variant("x", ONE), B))
    assert short([difference]) == [("variants.x", "changed", "none")]
    assert difference.message.startswith("a new name for variant a, with the same spec")
    # names that change places: running replicas are told apart by their spec
    swapped = found(side, of(A, B), of(variant("b", ONE), variant("a", TWO)))
    assert {one.effect for one in swapped} == {"none"}


def test_workers_that_become_a_variant_make_nothing_outdated(side: Sides) -> None:
    plain = fleet(model(workers=[ONE]))
    differences = found(side, plain, of(A, B))
    assert short(differences) == [("variants.a", "changed", "none"), ("variants.b", "added", "additive")]
    assert differences[0].message == ("the former workers are variant a, with the same spec: nothing becomes outdated, "
                                      "and running replicas are not affected")
    assert short(found(side, of(A, B), plain)) == [
        ("variants.a", "changed", "none"), ("variants.b", "removed", "drift")]
    # without a variant of the former spec, they are outdated
    assert short(found(side, plain, of(B, C))) == [
        ("variants.b", "added", "additive"), ("variants.c", "added", "additive"), ("workers", "removed", "drift")]


def test_what_variants_share_is_one_difference(side: Sides) -> None:
    assert short(found(side, of(A, B), of(A, B, replicas=9, priority=3))) == [
        ("replicas", "changed", "additive"), ("priority", "changed", "none")]
    assert short(found(side, fleet(model(workers=[ONE])), of(A, replicas=9))) == [
        ("replicas", "changed", "additive"), ("variants.a", "changed", "none")]


def test_the_placement_of_the_model_is_a_difference_of_each_variant_without_its_own(side: Sides) -> None:
    own = variant("c", THREE, placement={"spread": {"label": "rack", "maxPerValue": 2}})
    differences = found(side, of(A, B, own), of(A, B, own, placement={"spread": "rack"}))
    assert short(differences) == [("variants.a.placement.spread", "added", "drift"),
                                  ("variants.b.placement.spread", "added", "drift")]
    assert len({str(one.new_source) for one in differences}) == 1


def test_a_review_of_a_new_variant_is_read_in_under_ten_lines(side: Sides) -> None:
    diff = compare(side(fleet(model(workers=[ONE], replicas=5)), name="old"),
                   side(of(A, variant("b", TWO, max=2), replicas=5), name="new"))
    report = diff_report(diff)
    rows = [row for table in report.tables if "terminal" in table.readers for row in table.rows]
    assert len(rows) + len(report.heading) + len(report.notes) < 10


def over_one_label(placement: Json) -> Json:
    """The placement, spread over the label that all variants have."""
    spread = placement.get("spread")
    one = {**spread, "label": "zone"} if isinstance(spread, dict) else "zone"
    return {**placement, "spread": one} if spread else placement


def with_variants(document: Json, names: list[str], *, plain: bool) -> Json:
    """The fleet with all its models as variants of one; or, if `plain`, with only the first of them, as workers."""
    models = document["spec"]["models"]
    kept = {key: value for key, value in models[0].items() if key not in ("workers", "placement")}
    ways = [{key: value for key, value in one.items() if key in ("workers", "placement")} for one in models]
    ways = [{**way, "placement": over_one_label(way["placement"])} if way.get("placement") else way for way in ways]
    own = ways[0] if plain else {"variants": [{"name": name, **way} for name, way in zip(names, ways, strict=False)]}
    return {**document, "spec": {**document["spec"], "models": [{**kept, "key": "m", **own}]}}


@settings(max_examples=cases(20))
@given(FLEETS, FLEETS, st.permutations(["a", "b", "c"]), st.booleans(), st.booleans())
def test_any_variants_can_be_compared_with_any_others_and_no_secret_is_shown(
    old: Json, new: Json, names: list[str], was_plain: bool, is_plain: bool
) -> None:
    texts = [as_yaml(with_variants(old, ["a", "b", "c"], plain=was_plain)),
             as_yaml(with_variants(new, names, plain=is_plain))]
    loaded = [inspect_bytes([SourceBytes("fleet.yaml", text.encode())]) for text in texts]
    assume(all({problem.code for problem in one.errors} <= {"FL096"} for one in loaded))
    sides = [Side(Revision(name="side"), one.fleet, one.documents) for one in loaded if one.fleet]
    assume(len(sides) == 2)
    there, back = compare(*sides), compare(*reversed(sides))
    assert compare(sides[0], sides[0]).differences == []
    for one in there.differences:
        assert one.message
        for place, text in ((one.old_source, texts[0]), (one.new_source, texts[1])):
            assert place is None or 0 < place.line <= len(text.splitlines())
    assert len({(one.path, one.kind) for one in there.differences}) == len(there.differences)
    assert {one.path for one in there.differences if one.effect == "drift"} <= (
        {one.path for one in back.differences} | {"workers"})
    assert re.search(r"zs-|secret-one|secret: three", indented_json(there)) is None
    # whatever is said of the variants, a replica of the old fleet is outdated only if drift is reported
    before, after = (one.fleet.models[0] for one in loaded if one.fleet)
    outdated = [way.variant for way in before.alternatives if not after.has_spec(way.spec_hash)]
    assert bool(outdated) == any(one.effect == "drift" for one in there.differences)


def test_what_else_may_use_a_card_is_a_difference_without_effect(side: Sides) -> None:
    def with_residents(residents: str) -> str:
        return fleet(model(workers=[ONE])) + f"  nodes: [{{residents: {residents}}}]\n"

    [one] = found(side, with_residents("[{memory: 1Gi}]"), with_residents("[{memory: 2Gi, process: Xorg}]"))
    assert (one.path, one.effect, one.kind) == ("nodes[0].residents", "none", "changed")
    assert (one.old, one.new) == ("1Gi of any process", "2Gi of Xorg")
    [added] = found(side, fleet(model(workers=[ONE])), with_residents("[]"))
    assert (added.path, added.kind, added.effect) == ("nodes[0].residents", "added", "none")


def test_a_new_model_asks_for_the_minimums_of_its_variants_too(side: Sides) -> None:
    new = model("org/new", replicas=0, variants=[variant("a", ONE, min=2), variant("b", TWO, min=1)])
    diff = compare(side(fleet(model("org/a")), name="old"), side(fleet(model("org/a"), new), name="new"))
    [added] = diff.differences
    assert (added.effect, added.message) == ("additive", "a new model: up to 3 replicas may be created")
    assert (diff.before.replicas, diff.after.replicas) == (1, 4)
    assert diff.after.gpus - diff.before.gpus == 2 * 10_000 + 20_000


def test_without_a_target_the_minimums_of_variants_are_left(side: Sides) -> None:
    least = variant("a", ONE, min=2)
    [difference] = found(side, of(least, B, replicas=3), of(least, B, replicas=0))
    assert difference.message == (
        "no target anymore: running replicas are kept, but only up to the min of each variant (2 in all) recreated")
