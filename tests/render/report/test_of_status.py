"""The tables of `status`."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

from rich.console import Console

from fleetctl.documents.fleet import Placement, Restart
from fleetctl.documents.inventory import Replica
from fleetctl.documents.position import Position
from fleetctl.fleetfile.resolved import ResolvedModel, in_variants
from fleetctl.render.report.of_status import status_report
from fleetctl.render.report.terminal import print_report


def replica(**more: Any) -> Replica:
    return Replica.model_validate({"model": "m", "replicaId": 0, "fleet": "lab", **more})


def model(key: str, replicas: int) -> ResolvedModel:
    return ResolvedModel(key, replicas, 0, 60, 60, Restart(), Placement(), (), "", Position(file="f", line=1, column=1))


def printed(*replicas: Replica, dead: frozenset[str] = frozenset(), **more: Any) -> str:
    out = io.StringIO()
    more = {"observed_at": "2026-03-04T12:00:00Z", **more}
    report = status_report(replicas, {"a": "node-a", "b": "node-b"}, dead, **more)
    print_report(report, Console(file=out, width=160))
    return out.getvalue()


def test_restarts_and_the_last_error_are_shown_for_a_ready_replica() -> None:
    text = printed(replica(restarts=3, error="out of memory"))
    assert "ready, 3 restarts" in text
    assert "out of memory" in text
    assert text.splitlines()[-1] == "Replicas: 1 ready"


def test_a_gang_is_one_row_with_its_nodes_gpus_and_leader_address() -> None:
    text = printed(replica(members=[
        {"nodeId": "a", "gpus": 20_000, "address": "10.0.0.1", "port": 7001, "role": "Leader"},
        {"nodeId": "b", "gpus": 5_000, "address": "10.0.0.2", "port": 7002, "role": "Worker", "rank": 1}]))
    assert text.splitlines()[1].split() == ["m/0", "ready", "node-a,", "node-b", "2.5", "10.0.0.1:7001", "lab"]


def test_a_model_has_a_row_with_its_wanted_and_actual_replicas() -> None:
    states = ["ALIVE", "RESTARTING", "PENDING_CREATION"]
    text = printed(*(replica(replicaId=number, state=state) for number, state in enumerate(states)),
                   replica(replicaId=3, members=[{"nodeId": "a"}]), models=[model("m", 5), model("n", 2)],
                   dead=frozenset("a"))
    head, one, two = (line.split() for line in text.splitlines()[:3])
    assert dict(zip(head, one, strict=True)) == {
        "MODEL": "m", "WANTED": "5", "READY": "1", "STARTING": "1", "RESTARTING": "1", "LOST": "1", "MISSING": "2"}
    assert two == ["n", "2", "-", "-", "-", "-", "2"]
    assert "SURPLUS" in printed(replica(), replica(replicaId=1), models=[model("m", 1)])
    assert "MODEL" not in printed(replica())


def test_a_replica_that_the_minimum_of_its_variant_asks_for_is_not_surplus_and_one_below_it_is_missing() -> None:
    first, second = (replace(model("m", 1), variant=name, spec_hash=name, least=least)
                     for name, least in (("h100", 2), ("a100", 1)))
    of_variants = in_variants([first, second], first.source)
    text = printed(*(replica(replicaId=number, specHash="h100") for number in range(3)), models=[of_variants])
    head, row = (line.split() for line in text.splitlines()[:2])
    assert dict(zip(head, row, strict=True)) == {
        "MODEL": "m", "WANTED": "3", "READY": "3", "MISSING": "1", "SURPLUS": "1"}
    assert "SURPLUS" not in printed(replica(specHash="h100"), replica(replicaId=1, specHash="h100"),
                                    models=[of_variants])


def test_serving_members_have_addresses_and_wide_shows_all_members_with_their_cards() -> None:
    def member(rank: int, port: int, **more: Any) -> dict[str, Any]:
        return {"nodeId": "a", "rank": rank, "address": "fd00::7", "port": port, "gpuIndices": [2, 3], "slot": 1,
                "gpuUuids": ["GPU-a", "GPU-b"], "vram": 1 << 30, **more}

    pair = replica(members=[member(0, 7001), member(1, 7002), member(0, 7003, group="decode")],
                   specHash="0123456789abcdef")
    assert "[fd00::7]:7001, [fd00::7]:7003" in printed(pair)
    assert "7002" not in printed(pair)
    wide = printed(pair, wide=True)
    assert "m/0 main/0 rank 1" in wide
    assert wide.count("GPU-b") == 3
    assert {"2, 3", "1Gi", "0123456789ab", "[fd00::7]:7002"} <= set(re.split(r"\s\s+", wide))


def test_wide_shows_what_a_member_is_estimated_and_was_measured_to_take() -> None:
    one = replica(members=[{"nodeId": "a", "gpus": 10_000, "vram": 1 << 30}])
    known = printed(one, wide=True, on_cards=lambda *_: (2 << 30, 3 << 30))
    assert re.search(r"VRAM +ESTIMATED +MEASURED", known)
    assert re.search(r" 1Gi +2Gi +3Gi ", known)
    assert re.search(r" 1Gi +- +- ", printed(one, wide=True, on_cards=lambda *_: (None, None)))


def test_wide_shows_the_weights_that_a_member_serves() -> None:
    def serving(weights: dict[str, Any] | None) -> str:
        return printed(replica(members=[{"nodeId": "a", "weights": weights}]), wide=True)

    assert "WEIGHTS" not in serving(None)
    assert " 111111111111 part abcdefabcdefabcd, 1.50Gi" in serving(
        {"artifact": "1" * 64, "view": "abcdef" * 2 + "abcd", "port": 7000, "bytes": 3 << 29})


def test_an_unknown_node_is_shown_by_its_id_and_a_missing_one_as_a_question_mark() -> None:
    assert " c " in printed(replica(members=[{"nodeId": "c"}]))
    assert " ? " in printed(replica(members=[{}]))
    assert " - " in printed(replica())


def test_a_foreign_replica_keeps_its_own_name() -> None:
    text = printed(replica(replicaId=None, foreignId="ab12c:ModelActor:m", fleet=None))
    assert text.splitlines()[1].startswith("ab12c:ModelActor:m ")
    assert "(unmanaged)" in text


def test_without_replicas_the_status_is_one_sentence() -> None:
    assert printed() == "Replicas: none\n"


def test_the_totals_add_up() -> None:
    states = ["ALIVE", "ALIVE", "RESTARTING", "PENDING_CREATION", "DEPENDENCIES_UNREADY"]
    text = printed(*(replica(state=state) for state in states))
    assert text.splitlines()[-1] == "Replicas: 2 ready, 1 restarting, 2 starting"
