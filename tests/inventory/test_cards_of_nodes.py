"""Cards and the grants on each: unknown values are never guessed."""

from __future__ import annotations

import pytest

from fleetctl.documents.inventory import Amounts, CardProcess, Gpu, Node, NodeResources, Replica, ReplicaMember
from fleetctl.inventory.cards import (
    card_warnings,
    granted_by_card,
    pids_of,
    read_cards,
    reports_its_cards,
    with_foreign_memory,
    with_shares,
    with_unreported,
)

MIB = 1 << 20


@pytest.mark.parametrize(("total", "used", "expected"), [
    (81559, 4, (81559 * MIB, 4 * MIB)), (0, 0, (None, 0)), (None, None, (None, None)), (-1, -1, (None, None)),
    ("80GB", True, (None, None)), (float("nan"), float("inf"), (None, None)), (1.5, 0.5, (MIB * 3 // 2, MIB // 2)),
])
def test_memory_is_bytes_or_unknown(total, used, expected):
    [card] = read_cards({"gpus": [{"index": 0, "memoryTotal": total, "memoryUsed": used}]}, 10000)
    assert (card.memory_total, card.memory_used) == expected


@pytest.mark.parametrize("entry", [{}, {"gpus": None}, {"gpus": []}, {"gpus": ["?"]}, {"gpus": [{"name": "no index"}]}])
def test_a_node_without_card_statistics_has_cards_of_unknown_memory(entry):
    assert read_cards(entry, 20000) == [Gpu(index=0), Gpu(index=1)]
    assert read_cards(entry, 0) == []


def test_mig_slices_keep_their_own_index():
    cards = read_cards({"gpus": [{"index": 1001, "uuid": "MIG-b"}, {"index": 1000, "uuid": "MIG-a"}]}, 20000)
    assert [(card.index, card.uuid) for card in cards] == [(1000, "MIG-a"), (1001, "MIG-b")]


HOST = {"mem": [128 << 30, 100 << 30, 21.9, 28 << 30]}
"""Total, available, percent and used, as Ray's reporter has them."""


@pytest.mark.parametrize(("entry", "declared", "kind", "expected"), [
    ({**HOST, "gpus": []}, 10000, "GB10", (128 << 30, 28 << 30, True)),  # Ray leaves out a card without a total
    ({**HOST, "gpus": []}, 10000, "Orin-(nvgpu)", (128 << 30, 28 << 30, True)),
    ({**HOST, "gpus": [{"index": 0, "name": "Thor", "memoryTotal": 0, "memoryUsed": 0}]}, 10000, "",
     (128 << 30, 28 << 30, True)),
    ({**HOST, "gpus": []}, 10000, "H100", (None, None, False)),  # its statistics are not reported yet
    ({**HOST, "gpus": []}, 20000, "GB10", (None, None, False)),  # two cards share one memory: the holder is unknown
    ({"gpus": []}, 10000, "GB10", (None, None, False)),
    ({"mem": [1 << 30, "?"], "gpus": []}, 10000, "GB10", (None, None, False)),
    ({"mem": [1 << 30, 2 << 30], "gpus": []}, 10000, "GB10", (None, None, False)),
])
def test_a_card_without_its_own_memory_has_the_hosts(entry, declared, kind, expected):
    card = read_cards(entry, declared, kind)[0]
    assert (card.memory_total, card.memory_used, card.unified) == expected


def test_processes_of_a_card_are_read_without_malformed_entries():
    odd = ["?", {"pid": "7"}, {"gpuMemoryUsage": 5}, {"pid": 8, "gpuMemoryUsage": -1}, {"pid": 9, "gpuMemoryUsage": 5}]
    entry = {"gpus": [{"index": 0, "processesPids": odd}, {"index": 1, "processesPids": {"9": {}}}]}
    first, second = read_cards(entry, 20000, workers={9: "ray::Trainer"})
    assert first.processes == [CardProcess(pid=8), CardProcess(pid=9, memory=5 * MIB, command="ray::Trainer")]
    assert second.processes == []
    assert pids_of(entry) == {8, 9}


def test_grants_explain_their_memory_and_the_rest_is_foreign():
    cards = [Gpu(index=index, uuid=f"GPU-{index}", memory_total=80 << 30, memory_used=used << 30,
                 memory_foreign=0) for index, used in enumerate([30, 1, 75, 30])]
    on = Node(id="n", name="n", resources=NodeResources(total=Amounts(gpu=4), used=Amounts(gpu=1.5)),
              gpus=[*cards, Gpu(index=4)])
    members = [member(gpus=5000, vram=10 << 30, gpu_indices=[0]), member(gpus=10000, vram=8 << 30, gpu_indices=[2])]
    found = with_foreign_memory(on, members).gpus
    assert [card.memory_foreign for card in found] == [20 << 30, 0, 0, 30 << 30, None]


def test_a_mig_device_has_its_own_foreign_memory():
    """A member reports the UUID of its device and the index of the divided card."""
    cards = read_cards({"gpus": [{"index": 1000 + place, "uuid": f"MIG-{place}", "memoryTotal": 9856,
                                  "memoryUsed": 9000}
                                 for place in range(2)]}, 20000)
    on = Node(id="n", name="n", resources=NodeResources(total=Amounts(gpu=2), used=Amounts(gpu=1)), gpus=cards)
    found = with_foreign_memory(on, [member(gpus=10000, gpu_indices=[1], gpu_uuids=["MIG-1"])])
    assert [card.memory_foreign for card in found.gpus] == [9000 * MIB, 0]


def test_a_node_that_declares_a_wrong_number_of_gpus_is_reported():
    cards = [Gpu(index=0), Gpu(index=1)]
    nodes = [Node(id=name, name=name, resources=NodeResources(total=Amounts(gpu=gpus)), gpus=cards)
             for name, gpus in (("a", 4), ("b", 0), ("c", 2))]
    assert list(card_warnings(nodes)) == [
        "a offers 4 GPUs to Ray but reports 2 cards; which of them Ray grants is unknown"]


def reporting(name: str, count: int, *, kind: str = "", gpu: int = 8, state: str = "ALIVE") -> Node:
    labels = {"ray.io/accelerator-type": kind} if kind else {}
    cards = [{"index": index, "uuid": f"GPU-{name}-{index}", "memoryTotal": 81559} for index in range(count)]
    return Node(id=name, name=name, resources=NodeResources(total=Amounts(gpu=gpu)), state=state, labels=labels,
                gpus=read_cards({"gpus": cards}, gpu * 10_000))


@pytest.mark.parametrize(("nodes", "named"), [
    ([reporting("a", 3), reporting("b", 8)], {"a reports 3 of 8 cards"}),
    ([reporting("a", 0), reporting("b", 8), reporting("c", 0)], {"a, c each report 0 of 8 cards"}),
    ([reporting("a", 0, kind="H100")], {"a reports 0 of 8 cards"}),
    ([reporting("a", 0), reporting("b", 0, gpu=4)], set()),
    ([reporting("a", 0, state="DEAD"), reporting("b", 8), reporting("c", 0, gpu=0)], set()),
])
def test_nodes_that_do_not_report_all_their_cards_are_named(nodes: list[Node], named: set[str]):
    """Ray's reporter ends its list at the first card that it cannot open; simulated GPUs have no card and no kind."""
    assert {warning.partition(":")[0] for warning in card_warnings(with_unreported(nodes))} == named


def test_a_node_with_a_label_for_it_has_simulated_cards_and_is_not_named() -> None:
    simulated = reporting("a", 0, kind="H100").model_copy(
        update={"labels": {"ray.io/accelerator-type": "H100", "fleet.io/cards": "simulated"}})
    other = simulated.model_copy(update={"id": "b", "name": "b", "labels": {**simulated.labels, "fleet.io/cards": "x"}})
    assert [node.unreported_cards for node in with_unreported([simulated, other, reporting("c", 8)])] == [0, 8, 0]


def worker(actor_id: str, slot: str, allocation: float, name: str = "GPU") -> dict:
    return {"actorId": actor_id, "usedResources": {name: {"resourceSlots": [{"slot": slot, "allocation": allocation}]}}}


def member(**fields) -> ReplicaMember:
    return ReplicaMember(node_id="n", **fields)


TWO = [Gpu(index=0, uuid="GPU-a"), Gpu(index=1, uuid="GPU-b")]


def granted(members=(), workers=(), declared=20000):
    return granted_by_card(TWO, members, workers, declared_gpus=declared, live_actors=frozenset({"x"}))


def test_a_replicas_card_uuid_wins_over_its_index():
    assert granted([member(gpus=5000, gpu_indices=[0], gpu_uuids=["GPU-b"])]) == {1: 5000}
    assert granted([member(gpus=5000, gpu_indices=[0], gpu_uuids=["GPU-of-another-node"])]) == {0: 5000}
    assert granted([member(gpus=20000, gpu_indices=[0, 1])]) == {0: 10000, 1: 10000}
    assert granted([member(gpus=5000, gpu_indices=[7])]) == {}


def test_other_actors_are_assigned_to_cards_by_their_workers_slots():
    assert granted(workers=[worker("x", "1", 0.25), worker("x", "0", 1.0)]) == {1: 2500, 0: 10000}
    in_group = "GPUGroup6Cc62B5954Bc6Ec6371E0225445406000000"
    indexed = "GPUGroup06Cc62B5954Bc6Ec6371E0225445406000000"
    assert granted(workers=[worker("x", "1", 1.0, in_group), worker("x", "1", 1.0, indexed)]) == {1: 10000}


def test_workers_of_ended_or_self_reporting_actors_do_not_count():
    assert granted(workers=[worker("gone", "1", 0.25), "?", {"actorId": "x"}, worker("x", "many", 1)]) == {}


def test_slots_are_ignored_when_cards_and_declared_gpus_differ():
    assert granted(workers=[worker("x", "1", 0.25)], declared=10000) == {}


def test_shares_are_known_only_if_all_grants_are_explained():
    def shares(known, used):
        return [card.share for card in with_shares(TWO, known, used)]
    assert shares({}, 0) == [0, 0]
    assert shares({0: 2500}, 2500) == [0.25, 0]
    assert shares({0: 2500}, 5000) == [None, None]
    assert shares({0: 10000}, 15000) == [1.0, None]
    assert shares({0: 12500}, 12500) == [None, 0]


def test_statistics_of_ended_workers_take_no_card():
    """Ray's sum is below the slots of its workers, so the slots are outdated."""
    assert [card.share for card in with_shares(TWO, {0: 10000, 1: 10000}, 0)] == [0, 0]
    assert [card.share for card in with_shares(TWO, {0: 10000, 1: 10000}, 10000)] == [None, None]


def test_a_replica_reports_its_cards_only_if_every_member_with_gpus_does():
    def reports(*members: ReplicaMember) -> bool:
        return reports_its_cards(Replica(model="m", replica_id=0, members=list(members)))
    assert reports(member(gpus=5000, gpu_indices=[0]), member(cpus=1))
    assert reports(member(gpus=5000, gpu_uuids=["GPU-a"]))
    assert not reports(member(gpus=5000, gpu_indices=[0]), member(gpus=5000))
