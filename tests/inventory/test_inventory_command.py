"""`fleetctl inventory`: its output, warnings and exit codes."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
import typer
from fake_dashboard import FakeDashboard, cut_off
from rich.console import Console

from fleetctl.cli.inventory import app
from fleetctl.documents.inventory import (
    CardProcess,
    Cordon,
    Gpu,
    Inventory,
    Node,
    NodeResources,
    Replica,
    ReplicaMember,
    Slots,
)
from fleetctl.documents.loading import load_document
from fleetctl.errors import UsageError
from fleetctl.planner.placement.policies import policy_of
from fleetctl.render.report.of_inventory import inventory_report
from fleetctl.render.report.terminal import print_report


@pytest.fixture
def inventory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "FLEETCTL_ADDRESS", "FLEETCTL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    command = typer.main.get_command(app)
    return lambda *arguments: command.main(list(map(str, arguments)), standalone_mode=False)


def test_json_output_is_the_document_and_is_read_back(inventory, dashboard: FakeDashboard, capfd, tmp_path: Path):
    assert inventory("--address", dashboard.url, "--namespace", "invfleet", "--format", "json") == 0
    out, err = capfd.readouterr()
    document = load_document(out, Inventory, where="out")
    assert document.complete
    assert err == ""
    saved = tmp_path / "snapshot.json"
    saved.write_text(out)
    assert inventory("--inventory", saved, "--format", "json") == 0
    assert json.loads(capfd.readouterr().out) == json.loads(out)


def test_the_address_may_come_from_the_fleet_file(inventory, dashboard: FakeDashboard, capfd, fleet_file: Path):
    cluster = f"spec:\n  cluster: {{address: '{dashboard.url}', namespace: invfleet}}\n"
    fleet_file.write_text(fleet_file.read_text().replace("spec:\n", cluster, 1))
    assert inventory("-f", fleet_file, "--format", "json") == 0
    assert '"fleet": "lab"' in capfd.readouterr().out


def test_an_incomplete_reading_shows_what_is_known_and_exits_1(inventory, dashboard: FakeDashboard, capfd):
    dashboard.behaviours["summary"] = cut_off
    assert inventory("--address", dashboard.url) == 1
    out, err = capfd.readouterr()
    assert "vm-c4c267" in out or dashboard.rows("nodes")[0]["node_id"][:6] in out
    assert "Incomplete: no plan" in out
    assert "the cards could not be read" in err
    assert "the inventory is incomplete; plan and apply refuse it" in err


def test_an_ignored_slot_label_is_reported(inventory, capfd, tmp_path: Path, fleet_file: Path):
    nodes = [Node(id=name, name=name, labels={"fleet.io/replica-slots": text})
             for name, text in (("a", "2"), ("b", "-1"), ("c", "3"))]
    saved = tmp_path / "snapshot.json"
    saved.write_text(Inventory(observed_at="2026-03-04T12:00:00Z", source="a test", nodes=nodes)
                     .model_dump_json(by_alias=True))
    unreadable = ('warning: b: the label fleet.io/replica-slots is "-1", which is not a whole number of at least 1; '
                  "it is ignored\n")
    assert inventory("--inventory", saved) == 0
    assert capfd.readouterr().err == unreadable
    capped = "spec:\n  nodes: [{maxReplicasPerModel: 3}]\n"
    fleet_file.write_text(fleet_file.read_text().replace("spec:\n", capped, 1))
    assert inventory("--inventory", saved, "-f", fleet_file) == 0
    assert capfd.readouterr().err == (
        "note: a: the label fleet.io/replica-slots says 2; the fleet file overrides it "
        "(spec.nodes[0].maxReplicasPerModel: 3)\n"
        + unreadable)


def test_standard_input_is_read_once(inventory):
    with pytest.raises(UsageError):
        inventory("-f", "-", "--inventory", "-")


def shown(document: Inventory, width: int = 120) -> str:
    console = Console(file=StringIO(), width=width, markup=False, highlight=False)
    print_report(inventory_report(document, {node.id: policy_of(node, ()) for node in document.nodes}), console)
    return console.file.getvalue()


def small() -> Inventory:
    cards = [Gpu(index=0, uuid="GPU-a", model="NVIDIA L4", memory_total=24 << 30, memory_used=3 << 30, share=0.5),
             Gpu(index=1, uuid="GPU-b", model="NVIDIA L4", memory_total=24 << 30, memory_used=0, share=0)]
    member = ReplicaMember(group="main", node_id="a", gpus=5000, gpu_uuids=["GPU-a"], gpu_indices=[0],
                           address="10.0.0.1", port=4000)
    return Inventory(
        observed_at="2026-03-04T12:00:00Z", source="http://ray-head:8265",
        nodes=[Node(id="a", name="node-a", gpus=cards,
                    resources=NodeResources.model_validate({"total": {"GPU": 2, "CPU": 16, "memory": 64 << 30},
                                                            "used": {"GPU": 0.5, "CPU": 2}})),
               Node(id="b", name="node-b", state="DEAD")],
        replicas=[Replica(model="org/a", replica_id=0, fleet="lab", members=[member])],
    )


def test_the_table_shows_the_sources_of_slots_and_cordons():
    document = small()
    noted = document.nodes[0].model_copy(update={
        "slots": Slots(value=4, source="note of ana"), "cordon": Cordon(reason="new driver", by="ana")})
    text = shown(document.model_copy(update={"nodes": [noted]}), width=200)
    line = next(line for line in text.splitlines() if line.startswith("node-a"))
    assert "1 of 4 (note of ana)" in line
    assert "note of ana: new driver" in line
    assert "SLOTS" not in shown(document)


def test_the_table_names_cards_and_their_holders():
    lines = [line.rstrip() for line in shown(small()).splitlines()]
    held = next(line for line in lines if "card 0" in line)
    assert held.split()[2:] == ["0.5", "of", "1", "3Gi", "of", "24Gi", "21Gi", "org/a/0"]
    assert next(line for line in lines if line.startswith("org/a/0")).split() == [
        "org/a/0", "ready", "lab", "node-a", "GPU", "0", "(0.5", "GPU)", "10.0.0.1:4000"]
    assert lines[-1] == "1 node alive (1 not), 0.5 of 2 GPUs in use, 1 replica live (1 up)"


def test_equal_cards_share_a_row_and_their_model_is_beside_the_node():
    cards = [Gpu(index=index, uuid=f"GPU-{index}", model="NVIDIA L4", memory_total=24 << 30) for index in range(8)]
    document = small()
    text = shown(document.model_copy(update={
        "nodes": [document.nodes[0].model_copy(update={"gpus": cards}), document.nodes[1]]}), 200)
    rows = [line.split() for line in text.splitlines() if line.startswith("  card")]
    assert rows == [["card", "0", "unknown", "of", "24Gi", "org/a/0"], ["cards", "1-7", "unknown", "of", "24Gi"]]
    assert next(line for line in text.splitlines() if line.startswith("node-a")).rstrip().endswith("8 x NVIDIA L4")
    mixed = [cards[0], cards[1].model_copy(update={"model": "NVIDIA T4"})]
    text = shown(document.model_copy(update={"nodes": [document.nodes[0].model_copy(update={"gpus": mixed})]}), 200)
    assert "  card 1: NVIDIA T4 " in text


@pytest.mark.parametrize("width", [80, 90, 100])
def test_the_id_of_a_replica_is_never_shown_without_its_model(width: int):
    document = small()
    names = ["mistralai/Mistral-Large-2411", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-405B-Instruct"]
    text = shown(document.model_copy(update={"replicas": [
        document.replicas[0].model_copy(update={"model": name}) for name in names]}), width)
    assert not re.search(r"(^|\s)0,?$", text, re.MULTILINE)


def test_the_table_shows_foreign_memory_on_a_card_and_its_processes():
    document = small()
    assert "FOREIGN" not in shown(document, 200)
    used = {"memory_used": 23 << 30, "memory_foreign": 20 << 30,
            "processes": [CardProcess(pid=4242, memory=20 << 30, command="ray::[red]Trainer")]}
    cards = [document.nodes[0].gpus[0].model_copy(update=used), *document.nodes[0].gpus[1:]]
    node = document.nodes[0].model_copy(update={"gpus": cards})
    text = shown(document.model_copy(update={"nodes": [node]}), 200)
    line = next(line for line in text.splitlines() if "card 0" in line)
    assert line.split()[-5:] == ["20Gi", "by", "process", "4242", "(ray::[red]Trainer)"]


def test_text_from_a_cluster_cannot_control_the_terminal():
    hostile = small().model_copy(update={
        "replicas": [Replica(model="[red]\x1b[2J\u202e", replica_id=1, error="\x1b]0;title\x07", state="RESTARTING")],
        "nodes": [Node(id="a", name="\x1b[31mnode")],
    })
    text = shown(hostile)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]\\x1b" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_its_width(width: int):
    assert all(len(line) <= width for line in shown(small(), width).splitlines())


def test_a_replica_on_a_dead_node_is_lost_in_the_table_too():
    there = small().replicas[0].members[0].model_copy(update={"node_id": "b"})
    lost = small().model_copy(update={"replicas": [Replica(model="org/a", replica_id=0, fleet="lab", members=[there])]})
    assert next(line for line in shown(lost).splitlines() if line.startswith("org/a/0")).split()[1] == "lost"
