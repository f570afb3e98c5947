"""The replicas of an inventory, sorted for one fleet: which count, which only take room, and which ids are free."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from short_forms import short_inventory, short_model

from fleetctl.documents.inventory import LIVE_STATES, Replica
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import (
    LiveState,
    ModelState,
    in_fixed_order,
    is_outdated,
    sort_out,
)
from fleetctl.planner.promote import is_warm_with

NODES = [{"id": "1", "name": "b"}, {"id": "2", "name": "a"}, {"id": "3", "name": "gone", "state": "DEAD"}]


def sort(*replicas: dict[str, Any], adopt_from: str | None = None) -> LiveState:
    """Sort replicas of model m, unless they say otherwise, for fleet lab, whose file has only m."""
    return sort_out(short_inventory({"nodes": NODES, "replicas": [{"model": "m", **one} for one in replicas]}),
                    "lab", ["m"], adopt_from)


def sort_m(*replicas: dict[str, Any], **more: Any) -> ModelState:
    return sort(*replicas, **more).models["m"]


def ids(replicas: list[Replica]) -> list[int | None]:
    return [one.replica_id for one in replicas]


def messages(state: LiveState) -> list[str]:
    return [one.message for one in state.unmanaged]


def model(replicas: int = 1, surge: int = 0) -> ResolvedModel:
    return short_model({"key": "m", "replicas": replicas, "surge": surge, "hash": "new"})


def test_replicas_in_every_live_state_count_and_all_but_the_alive_ones_are_starting() -> None:
    found = sort_m(*({"id": number, "state": state} for number, state in enumerate(sorted(LIVE_STATES))))
    assert (ids(found.live), found.starting, found.observed_at) == ([0, 1, 2, 3], 3, "2026-01-01T00:00:00Z")


def test_a_dead_replica_is_nowhere_and_those_after_it_still_count() -> None:
    state = sort({"id": 0, "state": "DEAD", "node": "1"}, {"id": 1, "node": "1"})
    assert (ids(state.models["m"].live), state.models["m"].taken_ids, len(state.running)) == ([1], {1}, 1)
    assert (state.lost, state.unmanaged, len(state.holding["1"])) == ([], [], 1)


def test_a_replica_of_another_fleet_claims_its_model_and_its_id() -> None:
    state = sort({"id": 2, "fleet": "other", "node": "1", "foreign": "x"})
    found = state.models["m"]
    assert (found.live, found.claimed_by, found.taken_ids, found.own_ids) == ([], {"other"}, {2}, set())
    [one] = state.unmanaged
    assert one.model_dump() == {
        "model": "m", "replica_id": 2, "foreign_id": "x", "fleet": "other", "state": "ALIVE", "nodes": ["b"],
        "message": "belongs to fleet other; counted as capacity in use"}


def test_a_replica_of_no_fleet_claims_only_its_id() -> None:
    state = sort({"id": 2, "fleet": None})
    assert (state.models["m"].claimed_by, state.models["m"].taken_ids) == (set(), {2})
    assert messages(state) == ["belongs to no fleet; counted as capacity in use"]


def test_only_a_paused_model_has_a_reason_and_a_bar_for_new_replicas() -> None:
    inventory = short_inventory({"nodes": NODES, "pauses": [
        {"model": "held", "since": "2m", "by": "ana"}]})
    states = sort_out(inventory, "lab", ["held", "m"], None).models
    assert [(states[key].paused, states[key].barred) for key in ("held", "m")] == [
        (since := "paused since 2025-12-31 23:58 UTC by ana", ("PAUSED", since)), ("", None)]


def test_a_replica_that_has_no_node_yet_is_kept_and_holds_no_room() -> None:
    state = sort({"fleet": None, "foreign": "x", "nodes": ["1", None, "2"]})
    [one] = state.unmanaged
    assert (one.nodes, sorted(state.holding), len(state.running)) == (["a", "b"], ["1", "2"], 1)
    assert one.message == "belongs to no fleet; counted as capacity in use"


def test_replicas_of_models_that_are_not_in_the_file_are_kept_and_claim_nothing() -> None:
    state = sort({"model": "old", "id": 0}, {"model": "theirs", "id": 1, "fleet": "other"},
                 {"model": "warm", "id": 0, "level": "WARM"}, {"model": "lost", "id": 0, "node": "3"})
    assert messages(state) == ["runs under this fleet but is not in its file; kept",
                               "belongs to fleet other; counted as capacity in use"]
    assert state.models == {"m": ModelState(observed_at="2026-01-01T00:00:00Z")}
    assert [(one.model, one.nodes) for one in state.lost] == [("lost", ["gone"])]


def test_a_replica_with_our_mark_but_without_an_id_takes_room_and_does_not_count() -> None:
    state = sort({"foreign": "x", "node": "1"}, {"foreign": "y", "level": "WARM"})
    found = state.models["m"]
    assert (found.live, found.not_hot, found.claimed_by, found.taken_ids) == ([], [], set(), set())
    assert messages(state) == ["has this fleet's mark but no replica id; counted as capacity in use"]
    assert [ours for _, ours in state.running] == [False]
    assert len(state.holding["1"]) == 1


def test_only_replicas_of_our_models_are_adopted_and_only_from_the_named_fleet() -> None:
    state = sort({"id": 0, "fleet": "old"}, {"id": 1, "fleet": "other"}, {"id": 2, "fleet": None},
                 {"model": "x", "id": 3, "fleet": "old"}, {"id": 4}, adopt_from="old")
    assert (ids(state.models["m"].live), state.models["m"].claimed_by) == ([0, 4], {"other"})
    assert [(one.model, one.replica_id, one.message.partition(";")[0]) for one in state.unmanaged] == [
        ("m", 1, "belongs to fleet other"), ("m", 2, "belongs to no fleet"), ("x", 3, "belongs to fleet old")]
    assert sort_m({"id": 0, "fleet": None}).live == []


def test_a_replica_on_a_dead_node_is_lost_takes_no_room_and_keeps_its_id() -> None:
    state = sort({"id": 0, "nodes": ["1", "3", "2", "unlisted"]})
    found = state.models["m"]
    assert (found.live, ids(found.lost), found.own_ids, state.running, state.holding) == ([], [0], {0}, [], {})
    [one] = state.lost
    assert one.model_dump() == {
        "model": "m", "replica_id": 0, "code": "NODE_DEAD", "nodes": ["a", "b", "gone", "unlisted"],
        "message": "its actor is ALIVE but one of its nodes is dead; not counted, its id is not reused"}


def test_a_replica_that_was_never_constructed_is_lost_and_the_message_says_how_to_remove_it() -> None:
    [one] = sort({"id": 7, "constructed": False, "node": "1"}).lost
    assert (one.code, one.replica_id) == ("NEVER_CONSTRUCTED", 7)
    assert one.message == ("its actor is ALIVE but its constructor never returned, so it serves nothing; "
                           "`fleetctl evict m/7` removes it; not counted, its id is not reused")


def test_a_lost_replica_of_another_fleet_is_not_our_concern() -> None:
    state = sort({"id": 0, "fleet": "other", "node": "3"})
    assert (state.lost, state.unmanaged, state.models["m"].claimed_by) == ([], [], set())
    assert state.models["m"].taken_ids == {0}


def test_the_room_of_all_live_replicas_is_held_in_a_fixed_order() -> None:
    state = sort({"model": "x", "id": 0, "nodes": ["2", "1"], "gpus": 3}, {"id": 1, "node": "1", "gpus": 2},
                 {"id": 0, "node": "1", "fleet": "other", "gpus": 1}, {"id": 2})
    assert {node: [member.gpus for member in members] for node, members in state.holding.items()} == {
        "1": [10_000, 20_000, 30_000], "2": [30_000]}
    assert [(one.model, one.replica_id, ours) for one, ours in state.running] == [
        ("m", 0, False), ("m", 1, True), ("m", 2, True), ("x", 0, True)]


def test_a_warm_replica_takes_room_only_with_memory_in_any_of_its_members() -> None:
    with_memory = {"id": 1, "nodes": ["1", "2"], "level": "WARM", "memory": "1Gi"}
    state = sort({"id": 0, "node": "1", "level": "WARM"}, with_memory, {**with_memory, "id": 2, "fleet": "other"})
    assert ids([one for one, _ in state.running]) == [1, 2]
    inventory = short_inventory({"nodes": NODES, "replicas": [{"model": "m", **with_memory}]})
    [first, second] = inventory.replicas[0].members
    mixed = inventory.replicas[0].model_copy(update={"members": [first.model_copy(update={"memory": 0}), second]})
    state = sort_out(inventory.model_copy(update={"replicas": [mixed]}), "lab", ["m"])
    assert [one for one, _ in state.running] == [mixed]
    lost = sort({**with_memory, "nodes": ["3"]})
    assert (lost.running, lost.lost, lost.unmanaged) == ([], [], [])


def test_ids_on_other_levels_are_in_use_unless_the_same_id_is_hot() -> None:
    found = sort_m({"id": 1, "level": "WARM"}, {"id": 2, "level": "WARM"}, {"id": 2}, {"id": 3, "level": "WARM"},
                   {"id": 3, "fleet": None}, {"id": 4, "level": "WARM", "fleet": "other"}, {"id": 0})
    assert (ids(found.not_hot), found.not_hot_ids, found.hot_ids) == ([1, 2, 3], {1}, {0, 2, 3})
    assert (found.own_ids, found.taken_ids, found.claimed_by) == ({0, 1, 2, 3}, {0, 1, 2, 3, 4}, set())


def test_new_ids_count_up_from_our_highest_and_leave_out_those_of_others() -> None:
    assert ModelState().new_ids(2) == [0, 1]
    theirs = [{"id": 5, "fleet": None}, {"id": 9, "fleet": "other"}]
    assert sort_m({"id": 3}, *theirs).new_ids(3) == [4, 6, 7]
    assert sort_m({"id": 3}, {"id": 6, "level": "WARM"}, *theirs).new_ids(1) == [7]
    assert sort_m({"id": 3}, {"id": 8, "node": "3"}, *theirs).new_ids(1) == [10]


def test_a_claim_names_every_fleet_in_order_and_how_to_take_over() -> None:
    names = ["a", "b", "c", "d", "e", "f", "g"]
    assert sort_m(*({"id": 0, "fleet": name} for name in names[:1])).claim == (
        "this key is live under fleet a; remove it there, or take it over with --adopt-from a")
    assert sort_m(*({"id": 0, "fleet": name} for name in names)).claim == (
        "this key is live under fleets a, b, c, d, e, f, g; remove it there, or take it over with --adopt-from a")
    assert sort_m({"id": 0}).claim == ""


@pytest.mark.parametrize(("surge", "most", "missing"), [(0, 3, 0), (1, 4, 1), (2, 5, 2), (9, 5, 2)])
def test_an_update_may_add_as_many_as_the_surge_and_no_more_than_are_outdated(
    surge: int, most: int, missing: int
) -> None:
    found = sort_m({"id": 0, "hash": "new"}, {"id": 1, "hash": "old"}, {"id": 2, "hash": "older"})
    wanted = model(3, surge)
    assert (found.outdated(wanted), found.max_live(wanted), found.to_create(wanted)) == (2, most, missing)


def test_a_replica_of_an_unknown_spec_is_current() -> None:
    [unknown, old, new] = sort_m({"id": 0}, {"id": 1, "hash": "old"}, {"id": 2, "hash": "new"}).live
    assert [is_outdated(one, model()) for one in (unknown, old, new)] == [False, True, False]


@pytest.mark.parametrize(("wanted", "current", "outdated", "surge", "missing"), [
    (3, 0, 0, 0, 3), (3, 1, 0, 0, 2), (3, 5, 0, 0, 0), (3, 1, 2, 0, 0), (3, 1, 2, 1, 1), (3, 0, 3, 2, 2),
    (3, 2, 1, 2, 1), (3, 2, 9, 1, 0),
])
def test_outdated_replicas_are_replaced_up_to_the_surge(
    wanted: int, current: int, outdated: int, surge: int, missing: int
) -> None:
    live = [{"id": number, "hash": "new" if number < current else "old"} for number in range(current + outdated)]
    assert sort_m(*live).to_create(model(wanted, surge)) == missing


def test_replicas_have_one_order_whatever_rays_is() -> None:
    expected = [("a", 5, None, None, None), ("m", None, "z", None, None), ("m", 0, "a", None, None),
                ("m", 2, None, None, None), ("m", 2, "a", None, "y"), ("m", 2, "a", "f", None), ("m", 2, "a", "f", "x"),
                ("m", 2, "b", None, None), ("m", 10, "a", None, None)]
    replicas = [Replica(model=model, replica_id=number, fleet=fleet, foreign_id=foreign, actor_id=actor, state="ALIVE")
                for model, number, fleet, foreign, actor in expected]
    for first in permutations(replicas, 3):
        mixed = [*first, *(one for one in replicas[::-1] if one not in first)]
        assert list(in_fixed_order(mixed)) == replicas


ARTIFACT, OTHER = "1" * 64, "2" * 64


def warm(*artifacts: str | None, group: str | None = "main", **more: Any) -> Replica:
    """Return a WARM replica with one member per artifact, None = without weights."""
    members = [{"group": group, "copy": 0, "rank": rank, "role": "Worker" if rank else "Leader",
                "weights": None if artifact is None else {"artifact": artifact, "port": 7000}}
               for rank, artifact in enumerate(artifacts)]
    return Replica.model_validate({"model": "m", "replicaId": 0, "level": "WARM", "state": "ALIVE", "members": members,
                                   **more})


def test_a_replica_is_warm_with_weights_if_each_member_has_its_own() -> None:
    wanted = {("main", 0, 0): ARTIFACT, ("main", 0, 1): OTHER}
    assert is_warm_with(warm(ARTIFACT, OTHER), wanted)
    assert is_warm_with(warm(ARTIFACT, None), {**wanted, ("main", 0, 1): None})
    assert is_warm_with(warm(ARTIFACT, OTHER), {**wanted, ("main", 0, 1): None})
    assert is_warm_with(warm(ARTIFACT, group=None), {("", 0, 0): ARTIFACT})
    for other in (warm(ARTIFACT, ARTIFACT), warm(OTHER, OTHER), warm(ARTIFACT, None), warm(ARTIFACT),
                  warm(ARTIFACT, OTHER, OTHER), warm(ARTIFACT, OTHER, level="HOT"),
                  warm(ARTIFACT, OTHER, state="RESTARTING"), warm(ARTIFACT, OTHER, group="b")):
        assert not is_warm_with(other, wanted)
