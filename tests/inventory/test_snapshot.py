"""Snapshots from a file: minimal hand-written ones, and clear errors for damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import DocumentError
from fleetctl.inventory.snapshot import Snapshot

MINIMAL = """\
formatVersion: 1.0
kind: Inventory
observedAt: 2026-03-04T12:00:00Z
source: by hand
nodes:
- {id: a, name: node-a, resources: {total: {GPU: 8}}}
replicas:
- {model: m, replicaId: 0, fleet: lab, members: [{nodeId: somewhere-else, gpus: 10000}]}
"""


def written(tmp_path: Path, data: str | bytes) -> str:
    path = tmp_path / "snapshot"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def test_a_minimal_snapshot_is_accepted(tmp_path: Path):
    inventory = Snapshot(written(tmp_path, MINIMAL)).read()
    assert inventory.complete
    assert inventory.observed_at == "2026-03-04T12:00:00Z"
    assert inventory.nodes[0].resources.total.gpu == 8
    assert inventory.nodes[0].resources.used is None
    assert inventory.replicas[0].members[0].node_id == "somewhere-else"


def test_a_member_may_have_the_name_of_its_node(tmp_path: Path):
    """Hand-written snapshots use node names. A replica without a node would leave its cards free in a plan."""
    inventory = Snapshot(written(tmp_path, MINIMAL.replace("somewhere-else", "node-a"))).read()
    assert inventory.replicas[0].members[0].node_id == "a"


@pytest.mark.parametrize(("ip", "address", "kept"), [
    ("10.0.0.1", "10.0.0.1", "10.0.0.1"), ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"), ("10.0.0.1", "10.0.0.2", None),
    ("fd00::7", "FD00:0::7", "fd00::7"), ("10.0.0.1", "router", None),
    (None, "10.0.0.2", "10.0.0.2"), (None, "10.0.0.2; }", None), (None, "router", None),
])
def test_an_address_in_a_document_counts_only_if_it_is_that_of_its_node(
        tmp_path: Path, ip: str | None, address: str, kept: str | None):
    text = MINIMAL.replace("nodeId: somewhere-else", f'nodeId: node-a, port: 80, address: "{address}"')
    text = text.replace("name: node-a", f'name: node-a, ip: "{ip}"') if ip else text
    found = Snapshot(written(tmp_path, text)).read()
    [member] = found.replicas[0].members
    assert (member.address, member.host_port) == (kept, "" if kept is None else member.host_port)
    assert len(found.warnings) == (kept is None)
    assert all("replica ModelActor:m:0: it says that it serves at" in warning for warning in found.warnings)


def test_more_gpus_than_cards_are_a_warning_once(tmp_path: Path):
    eight = "gpus: [" + ", ".join(f"{{index: {index}}}" for index in range(8)) + "]"
    assert Snapshot(written(tmp_path, MINIMAL.replace("name: node-a", f"name: node-a, {eight}"))).read().warnings == []
    text = MINIMAL.replace("name: node-a", f"name: node-a, {eight}").replace("GPU: 8", "GPU: 800")
    inventory = Snapshot(written(tmp_path, text)).read()
    assert inventory.warnings == [
        "node-a offers 800 GPUs to Ray but reports 8 cards; which of them Ray grants is unknown"]
    assert Snapshot(written(tmp_path, inventory.model_dump_json(by_alias=True))).read().warnings == inventory.warnings


def test_mistakes_in_a_handwritten_snapshot_are_warnings(tmp_path: Path):
    """An ignored key, or a member with 1/10000 of a card, would silently give a wrong plan."""
    text = MINIMAL.replace("gpus: 10000", "gpus: 1").replace("{total:", "{totals: {GPU: 1}, total:") + "nods: []\n"
    assert Snapshot(written(tmp_path, text)).read().warnings == [
        "nodes[0].resources.totals is not a key of an Inventory and is ignored; did you mean total?",
        "nods is not a key of an Inventory and is ignored; did you mean nodes?",
        "a member of m has gpus: 1, which is 1/10000 of a card; did you mean 10000, 1 whole card?"]


def test_only_keys_of_the_same_place_are_suggested_for_an_unknown_one(tmp_path: Path):
    failed = "failures: [{model: m, replicaId: 0, code: ENGINE_EXITED, nodes: [a], zzz: 1}]\n"
    assert Snapshot(written(tmp_path, MINIMAL + failed)).read().warnings == [
        "failures[0].nodes is not a key of an Inventory and is ignored; did you mean nodeIds?",
        "failures[0].zzz is not a key of an Inventory and is ignored"]


def test_a_mistake_that_two_replicas_of_a_model_share_is_one_warning(tmp_path: Path):
    inventory = Snapshot(written(tmp_path, MINIMAL.replace("gpus: 10000", "gpus: 1"))).read()
    twice = inventory.model_copy(update={"warnings": [], "replicas": [
        replica.model_copy(update={"replica_id": number}) for number in (0, 1) for replica in inventory.replicas]})
    again = Snapshot(written(tmp_path, twice.model_dump_json(by_alias=True))).read()
    assert len(again.replicas) == 2
    assert len(again.warnings) == 1


def test_a_snapshot_comes_from_standard_input(tmp_path: Path):
    assert Snapshot("-", stdin=MINIMAL.encode).read().source == "by hand"
    with pytest.raises(DocumentError, match="standard input is empty"):
        Snapshot("-", stdin=lambda: b"").read()


def test_unknown_keys_of_a_newer_minor_version_are_ignored(tmp_path: Path):
    text = MINIMAL.replace("1.0", "1.7").replace("GPU: 8", "GPU: 8, NPU: 3") + "news: 1\n"
    text = text.replace("by hand", "http://ray-head:8265")
    assert Snapshot(written(tmp_path, text)).read().format_version == "1.7"
    assert not Snapshot(written(tmp_path, text)).read().warnings


@pytest.mark.parametrize(("data", "words"), [
    (b"\xff\xfe{}", "is not UTF-8 text (byte 0)"),
    (MINIMAL.replace("id: a", "id: a, gpus: [{index: -x}]"), "nodes[0].gpus[0].index"),
    (MINIMAL.replace("00:00Z", "00:00"), "observedAt: expected RFC 3339 with a zone"),
    (MINIMAL.replace("GPU: 8", "GPU: .nan"), "nodes[0].resources.total.GPU"),
    (MINIMAL.replace("replicas:", "- {id: a, name: node-b}\nreplicas:"), "two nodes with the id 'a'"),
    (MINIMAL.replace("replicas:", "- {id: b, name: node-a}\nreplicas:"), "two nodes with the name 'node-a'"),
])
def test_a_damaged_snapshot_is_refused_with_its_place(tmp_path: Path, data: str | bytes, words: str):
    with pytest.raises(DocumentError) as caught:
        Snapshot(written(tmp_path, data)).read()
    assert words in caught.value.message


def test_a_missing_snapshot_file_is_named(tmp_path: Path):
    with pytest.raises(DocumentError, match="cannot be read: No such file"):
        Snapshot(str(tmp_path / "none")).read()


def test_a_node_shape_given_as_a_file_gets_the_command_that_writes_a_snapshot():
    with pytest.raises(DocumentError) as caught:
        Snapshot("8xH100").read()
    assert "fleetctl inventory --add-node 8xH100 --format json" in (caught.value.hint or "")


@pytest.mark.parametrize(("text", "message"), [
    ('{\n "kind": "Inventory",\n "nodes": [\n  {"id": "a"},\n ]\n}', ":4:14: not JSON: a comma before ]"),
    ('{"kind": "Inventory",}', ":1:21: not JSON: a comma before }"),
    ('{"kind": "Inventory" "nodes": []}', ":1:22: not JSON"),
    ('{"kind": "Inventory",', "incomplete JSON"),
    (MINIMAL.replace("GPU: 8", "memory: 1Ti"), "1Ti is not a number of bytes; did you mean 1099511627776?"),
])
def test_invalid_json_and_units_are_reported_with_their_place(tmp_path: Path, text: str, message: str):
    with pytest.raises(DocumentError) as caught:
        Snapshot(written(tmp_path, text)).read()
    assert message in caught.value.message


def test_wrong_gpu_units_and_file_extensions_get_a_suggestion(tmp_path: Path):
    inventory = Snapshot(written(tmp_path, MINIMAL.replace("gpus: 10000", "gpus: 2"))).read()
    assert inventory.warnings[0].endswith("did you mean 20000, 2 whole cards?")
    (tmp_path / "lab.yaml").write_text(MINIMAL)
    with pytest.raises(DocumentError) as caught:
        Snapshot(str(tmp_path / "lab.yml")).read()
    assert caught.value.hint == f"did you mean {tmp_path / 'lab.yaml'}?"
