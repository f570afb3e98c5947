"""Endpoints: only ready replicas, the leaders of gangs, with the names and groups of the file."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.cli import endpoints as command
from fleetctl.cli.endpoints import endpoints_of
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import SourceBytes


def member(group: str = "main", rank: int = 0, copy: int = 0, address: str | None = "10.0.0.1", port: int = 9000
           ) -> dict[str, Any]:
    role = "Worker" if rank else "Leader"
    return {"group": group, "copy": copy, "rank": rank, "role": role, "nodeId": "n1", "address": address, "port": port}


def replica(model: str, number: int, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "replicaId": number, "fleet": "lab", "members": list(members) or [member()], **more}


def cluster(*replicas: dict[str, Any], node: str = "ALIVE") -> Inventory:
    return Inventory.model_validate({
        "observedAt": "2026-03-04T12:00:00Z", "source": "x", "nodes": [{"id": "n1", "name": "node-a", "state": node}],
        "replicas": list(replicas)})


def fleet(serving: str = "") -> ResolvedFleet:
    text = f"""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {{name: lab}}
spec:
  models:
  - key: org/m
    replicas: 1
    {serving}
    workers:
    - {{name: prefill, members: [{{resources: {{cpus: 1}}, engine: {{command: [a]}}}}]}}
    - {{name: decode, members: [{{resources: {{cpus: 1}}, engine: {{command: [a]}}}}]}}
"""
    return inspect_bytes([SourceBytes("fleet.yaml", text.encode())]).sound()


def urls(found: Any) -> list[str]:
    return [one.url for model in found.models for one in model.endpoints]


@pytest.mark.parametrize("more", [
    {"state": "PENDING_CREATION"}, {"state": "RESTARTING"}, {"state": "DEAD"}, {"constructed": False},
    {"draining": True}, {"level": "WARM"}, {"fleet": "other"}, {"fleet": None},
])
def test_only_ready_replicas_of_the_fleet_serve(more: dict[str, Any]):
    found = endpoints_of(cluster(replica("org/m", 0), replica("org/m", 1, member(port=9001), **more)), fleet())
    assert urls(found) == ["http://10.0.0.1:9000/v1"]


def test_a_replica_on_a_dead_node_serves_nothing():
    assert urls(endpoints_of(cluster(replica("org/m", 0), node="DEAD"), fleet())) == []


def test_every_leader_of_every_group_and_copy_serves_and_no_worker():
    gang = replica("org/m", 0, member(), member(rank=1, port=9001), member(copy=1, port=9002),
                   member("decode", port=9003))
    found = endpoints_of(cluster(gang), None)
    assert [(one.group, one.copy_index, one.port) for model in found.models for one in model.endpoints] == [
        ("main", 0, 9000), ("main", 1, 9002), ("decode", 0, 9003)]


def test_two_replicas_of_a_model_on_one_node_are_two_endpoints_with_separate_ids_and_addresses():
    [model] = endpoints_of(cluster(replica("m", 0), replica("m", 1, member(port=9001))), None).models
    assert [(one.replica_id, one.node, one.host_port) for one in model.endpoints] == [
        (0, "node-a", "10.0.0.1:9000"), (1, "node-a", "10.0.0.1:9001")]


def test_a_member_without_an_address_is_not_an_endpoint():
    assert urls(endpoints_of(cluster(replica("org/m", 0, member(address=None))), None)) == []


def test_the_file_sets_the_served_name_and_models_that_are_not_ready_have_a_row():
    serving = "serving: {name: small, path: /api, groups: [decode], weight: 3}"
    there = replica("org/m", 0, member("prefill"), member("decode", port=9001))
    [model] = endpoints_of(cluster(there), fleet(serving)).models
    assert (model.name, model.weight, [one.url for one in model.endpoints]) == (
        "small", 3, ["http://10.0.0.1:9001/api"])
    [empty] = endpoints_of(cluster(), fleet(serving)).models
    assert (empty.key, empty.endpoints) == ("org/m", [])


def test_without_a_file_all_replicas_started_by_any_fleet_are_listed():
    found = endpoints_of(cluster(replica("b", 1), replica("b", 0), replica("a", 0, fleet="other"),
                              replica("c", 0, fleet=None)), None)
    assert [(model.key, [one.replica_id for one in model.endpoints]) for model in found.models] == [
        ("a", [0]), ("b", [0, 1])]


def test_an_ipv6_address_is_in_brackets():
    assert urls(endpoints_of(cluster(replica("m", 0, member(address="fd00::7"))), None)) == ["http://[fd00::7]:9000/v1"]


def test_serving_changes_no_spec():
    [plain], [named] = fleet().models, fleet("serving: {name: x}").models
    assert plain.spec_hash == named.spec_hash


@pytest.mark.parametrize("one", [
    *(member(address=address) for address in ("10.0.0.1; }", "localhost", "0.0.0.0", "fe80::1%eth0", "10.0.0.1 ")),
    *(member(port=port) for port in (0, -1, 65_536)),
])
def test_a_member_without_the_address_of_a_machine_has_no_endpoint(one: dict[str, Any]):
    assert urls(endpoints_of(cluster(replica("org/m", 0, one)), None)) == []


@pytest.mark.parametrize("key", ["a b ", "a\nb", "a\u202eb", "a" * 513])
def test_a_model_whose_key_no_fleet_can_have_is_not_listed(key: str):
    assert endpoints_of(cluster(replica(key, 0)), None).models == []


def test_an_address_is_listed_in_its_shortest_form():
    found = endpoints_of(cluster(replica("org/m", 0, member(address="::ffff:10.0.0.1"))), None)
    assert urls(found) == ["http://10.0.0.1:9000/v1"]


VARIANTS = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/m
    replicas: 2
    serving: {weight: 2}
    variants:
    - name: h100
      workers: [{name: main, members: [{resources: {cpus: 1}, engine: {
        command: [a], readiness: {http: {path: /of-h100}}}}]}]
    - name: a100
      weight: 7
      workers: [{name: main, members: [{resources: {cpus: 2}, engine: {
        command: [a], readiness: {http: {path: /of-a100}}}}]}]
"""


def test_each_endpoint_has_the_weight_and_the_readiness_path_of_its_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    written = inspect_bytes([SourceBytes("fleet.yaml", VARIANTS.encode())]).sound()
    first, second = (one.spec_hash for one in written.models[0].variants)
    seen = cluster(replica("org/m", 0, specHash=first), replica("org/m", 1, specHash=second, variant="former-name"),
                   replica("org/m", 2, specHash="x", variant="a100"), replica("org/m", 3, specHash="x", variant="gone"),
                   replica("org/m", 4))
    found = endpoints_of(seen, written)
    [model] = found.models
    assert [(one.variant, model.weight_of(one)) for one in model.endpoints] == [
        ("h100", 2), ("a100", 7), ("a100", 7), ("gone", 2), (None, 2)]
    asked = []
    monkeypatch.setattr(command, "answering", lambda endpoints: [asked.append(path) or True for *_, path in endpoints])
    assert command._checked(found, written, set()) == found
    assert asked == ["/of-h100", "/of-a100", "/of-a100", None, None]
    [model] = endpoints_of(seen, None).models
    assert [(one.variant, model.weight_of(one)) for one in model.endpoints] == [
        (None, 1), ("former-name", 1), ("a100", 1), ("gone", 1), (None, 1)]


def test_another_weight_of_a_variant_changes_no_replica() -> None:
    two, three = (inspect_bytes([SourceBytes("fleet.yaml", VARIANTS.replace("weight: 7", weight).encode())]).sound()
                  for weight in ("weight: 7", "weight: 1000"))
    assert [one.spec_hash for one in two.models[0].variants] == [one.spec_hash for one in three.models[0].variants]
    for weight in ("0", "1001", "1.5", "x"):
        wrong = inspect_bytes([SourceBytes("fleet.yaml", VARIANTS.replace("weight: 7", f"weight: {weight}").encode())])
        assert ["weight" in problem.message for problem in wrong.errors] == [True]
