"""The example fleets: each is valid, and the demo's fleet fits the demo's nodes as its comments say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from fleetctl.demo.cluster import DEMO_NODES
from fleetctl.documents.inventory import Amounts, Inventory, Node, NodeResources
from fleetctl.documents.plan import Plan
from fleetctl.documents.schemas import json_schema
from fleetctl.fleetfile.load import load_fleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.planner.questions.new_node import new_nodes

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
FLEETS = Path(__file__).parents[2] / "fleets"


@pytest.fixture(scope="module")
def plan() -> Plan:
    nodes = [
        Node(
            id=f"id-{node.name}",
            name=node.name,
            labels=node.all_labels(),
            resources=NodeResources(total=Amounts(GPU=node.gpus, CPU=node.cpus, memory=node.memory_bytes)),
        )
        for node in DEMO_NODES
    ]
    inventory = Inventory(observed_at="2026-03-04T12:00:00Z", source="the demo's nodes", nodes=nodes)
    fleet = load_fleet([str(FLEETS / "demo.yaml")])
    return make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="0"))


EXAMPLES = [FLEETS / "demo.yaml", *sorted(FLEETS.glob("*/fleet.yaml"))]
PARTS = sorted((FLEETS / "environments").glob("*.yaml"))


def test_there_are_ten_examples_each_in_a_folder_of_its_own_and_one_of_several_environments() -> None:
    assert [path.parent.name for path in EXAMPLES] == [
        "fleets", "described-models", "frontier-gang", "house-rules", "large-lab", "real-model", "research-lab",
        "shared-cards", "shared-weights", "variants"]
    assert {path.name for path in PARTS} == {"base.yaml", "prod.yaml", "staging.yaml"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_valid_alone_and_with_its_folder_and_names_its_schema(path: Path) -> None:
    assert load_fleet([str(path)]).models == load_fleet([str(path.parent)]).models
    schema = "../" * len(path.parent.relative_to(FLEETS.parent).parts) + "schemas/fleet.schema.json"
    assert path.read_text().startswith(f"# yaml-language-server: $schema={schema}\n")


def test_the_snapshot_of_the_lab_matches_its_fleet() -> None:
    lab = FLEETS / "research-lab"
    plan = make_plan(load_fleet([str(lab / "fleet.yaml")]), Snapshot(str(lab / "lab.json")).read(), PlanOptions(),
                     PlanFacts(tool_version="0"))
    assert (plan.exit_code, plan.drift, plan.unmanaged) == (0, [], [])


def test_the_described_models_fit_on_the_nodes_that_the_example_names() -> None:
    path = FLEETS / "described-models" / "fleet.yaml"
    inventory = Inventory(observed_at="2026-03-04T12:00:00Z", source="by hand", nodes=[])
    for shape in ("8xH100 x3", "4xL4"):
        inventory = inventory.model_copy(update={"nodes": [*inventory.nodes, *new_nodes(shape, inventory)[0]]})
    plan = make_plan(load_fleet([str(path)]), inventory, PlanOptions(), PlanFacts(tool_version="0"))
    assert (plan.blocked, plan.notes, plan.summary.create) == ([], [], 4)


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_a_part_fits_the_schema_it_names_and_no_other(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=../../schemas/fleet-part.schema.json\n")
    document = yaml.safe_load(path.read_text())
    assert jsonschema.Draft7Validator(json_schema("fleet-part")).is_valid(document)
    assert not jsonschema.Draft7Validator(json_schema("fleet")).is_valid(document)


def test_the_environments_share_their_models_and_differ_in_what_they_say() -> None:
    staging, prod = (load_fleet([str(FLEETS / "environments" / f"{name}.yaml")]) for name in ("staging", "prod"))
    assert [model.replicas for model in staging.models] == [1, 1]
    assert [model.replicas for model in prod.models] == [6, 4, 2]
    assert [model.key for model in prod.models[:2]] == [model.key for model in staging.models]
    assert staging.models[1].spec_hash == prod.models[1].spec_hash


def test_the_examples_are_formatted(run_cli: RunCli) -> None:
    checked = run_cli("fmt", "--check", *EXAMPLES, FLEETS / "environments")
    assert checked.returncode == 0, checked.stdout


def test_the_demo_places_all_but_one_replica(plan: Plan) -> None:
    assert len(plan.actions) == 7
    assert [(blocked.model, blocked.replicas) for blocked in plan.blocked] == [("mistralai/Mistral-Large-2411", 1)]
    assert plan.exit_code == 3


def test_the_demos_gang_runs_on_two_nodes_of_one_fabric(plan: Plan) -> None:
    (gang,) = (action for action in plan.actions if action.model == "Qwen/Qwen3-235B-A22B")
    assert [(member.rank, member.node) for member in gang.members] == [(0, "node-b"), (1, "node-c")]


def test_the_demos_small_replicas_share_a_card(plan: Plan) -> None:
    small = [action.members[0] for action in plan.actions if action.model == "openai-community/gpt2"]
    assert {member.node for member in small} == {"node-a"}
    assert sum(member.gpus for member in small) <= 10_000
