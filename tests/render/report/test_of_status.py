"""The table of what runs."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from fleetctl.documents.inventory import Replica
from fleetctl.render.report.of_status import status_report
from fleetctl.render.report.terminal import print_report


def replica(**more: Any) -> Replica:
    return Replica.model_validate({"model": "m", "replicaId": 0, "fleet": "lab", **more})


def shown(*replicas: Replica, dead: frozenset[str] = frozenset()) -> str:
    out = io.StringIO()
    print_report(status_report(replicas, {"a": "node-a", "b": "node-b"}, dead), Console(file=out, width=120))
    return out.getvalue()


def test_one_dead_node_makes_a_replica_lost_whatever_ray_says() -> None:
    gang = replica(members=[{"nodeId": "a"}, {"nodeId": "b", "rank": 1}])
    assert "1 lost" in shown(gang, dead=frozenset("b"))


def test_restarts_and_the_last_error_stand_beside_one_that_is_up_again() -> None:
    text = shown(replica(restarts=3, error="out of memory"))
    assert "ready, 3 restarts" in text
    assert "out of memory" in text
    assert text.splitlines()[-1] == "Replicas: 1 ready"


def test_a_gang_is_one_row_with_its_nodes_its_gpus_and_its_leaders_address() -> None:
    text = shown(replica(members=[
        {"nodeId": "a", "gpus": 20_000, "address": "10.0.0.1", "port": 7001, "role": "Leader"},
        {"nodeId": "b", "gpus": 5_000, "address": "10.0.0.2", "port": 7002, "role": "Worker", "rank": 1}]))
    assert text.splitlines()[1].split() == ["m/0", "ready", "node-a,", "node-b", "2.5", "10.0.0.1:7001", "lab"]


def test_a_node_that_is_not_known_is_shown_by_its_id_and_none_as_a_question() -> None:
    assert " c " in shown(replica(members=[{"nodeId": "c"}]))
    assert " ? " in shown(replica(members=[{}]))
    assert " - " in shown(replica())


def test_a_foreign_one_is_called_by_its_own_name() -> None:
    text = shown(replica(replicaId=None, foreignId="ab12c:ModelActor:m", fleet=None))
    assert text.splitlines()[1].startswith("ab12c:ModelActor:m ")
    assert "(unmanaged)" in text


def test_nothing_running_is_said() -> None:
    assert shown() == "Replicas: none\n"


def test_the_totals_add_up() -> None:
    states = ["ALIVE", "ALIVE", "RESTARTING", "PENDING_CREATION", "DEPENDENCIES_UNREADY"]
    text = shown(*(replica(state=state) for state in states))
    assert text.splitlines()[-1] == "Replicas: 2 ready, 1 restarting, 2 starting"
