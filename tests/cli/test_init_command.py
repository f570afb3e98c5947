"""`fleetctl init`: a first fleet file that validates, is formatted, and fits the cluster it was made for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_result import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.documents.inventory import Gpu, Inventory, Node
from fleetctl.documents.model import Description
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.first_fleet import (
    ENGINES,
    GIB,
    FirstFleet,
    NodeCards,
    card_kinds,
    choose_cards,
    first_fleet,
    guessed,
    needs,
    weights_bytes,
)
from fleetctl.importers.write import problems_of
from fleetctl.sizing.engine_line import Engine
from tests.fleetfile.memory_tree import inspect
from tests.planner.short_forms import plan_for
from tests.sizing.test_public_models import FACTS, described

L4, H100 = NodeCards("L4", 23 * GIB, 2), NodeCards("H100", 80 * GIB, 8)
UNKNOWN = NodeCards(None, None, 4)


@pytest.mark.parametrize(("name", "gigabytes"), [
    ("meta-llama/Llama-3.1-8B-Instruct", 16), ("Qwen/Qwen3-235B-A22B", 470), ("mistralai/Mixtral-8x7B-v0.1", 112),
    ("Qwen/Qwen2.5-0.5B", 1), ("org/Model-70B-AWQ", 35), ("org/Model-70b-FP8", 70), ("bigscience/bloom-560m", 1.12),
    ("openai-community/gpt2", None), ("7B-org/model", None),
])
def test_the_size_is_read_from_the_name(name: str, gigabytes: float | None) -> None:
    assert weights_bytes(name) == (gigabytes and round(gigabytes * 1e9))


@pytest.mark.parametrize(("gigabytes", "kinds", "accelerator", "gpus", "fits"), [
    (16, [L4, H100], "L4", 1, True), (30, [L4, H100], "L4", 2, True), (30, [H100], "H100", 1, True),
    (140, [L4, H100], "H100", 4, True), (900, [L4, H100], "H100", 8, False), (None, [L4, H100], "L4", 1, True),
    (140, [UNKNOWN], None, 1, True),
])
def test_a_guess_gets_the_shape_with_the_least_memory_that_holds_it(
    gigabytes: float | None, kinds: list[NodeCards], accelerator: str | None, gpus: int, fits: bool
) -> None:
    need = choose_cards(guessed(f"m-{gigabytes / 2:g}B" if gigabytes else "m"), "vllm", kinds)
    assert (need.kind.accelerator, need.gpus, need.nodes, need.fits) == (accelerator, gpus, 1, fits)


def node(name: str, count: int, memory: int | None, label: str) -> Node:
    gpus = [Gpu(index=index, model="NVIDIA\n- X", memory_total=memory) for index in range(count)]
    return Node.model_validate({"id": name, "name": name, "labels": {"ray.io/accelerator-type": label} if label else {},
                                "resources": {"total": {"GPU": count, "CPU": 8, "memory": 64 * GIB}}, "gpus": gpus})


NODES = st.builds(node, st.text("ab\n#: -{", min_size=1, max_size=5), st.integers(0, 8),
                  st.sampled_from([None, 23 * GIB, 80 * GIB]), st.sampled_from(["", "L4", "H100"]))


@given(st.none() | st.lists(NODES, max_size=4), st.sampled_from(sorted(ENGINES)),
       st.lists(st.sampled_from(["openai-community/gpt2", "meta/Llama-70B", "a/b-9000B", "{x:#y-7B"])).map(tuple))
def test_the_file_is_sound_and_formatted_for_any_cluster(
    nodes: list[Node] | None, engine: str, models: tuple[str, ...]
) -> None:
    seen = None if nodes is None else Inventory(observed_at="2026-03-04T12:00:00Z", source="a test", nodes=nodes)
    text = first_fleet(FirstFleet("lab", models, engine, seen, "http://a:1"))
    assert problems_of(text, "") == ()
    assert not format_source(SourceBytes("", text.encode())).changed


@pytest.mark.parametrize(("engine", "words"), [
    ("vllm", ["vllm", "serve", "org/a-7B", "--host", "--port", "--revision", "step3"]),
    ("llama.cpp", ["llama-server", "-hf", "org/a-7B", "--host", "--port"])])
def test_the_engine_of_a_key_of_ndif_serves_its_checkpoint_under_that_name(engine: str, words: list[str]) -> None:
    key = 'LanguageModel:{"repo_id": "org/a-7B", "revision": "step3"}'
    text = first_fleet(FirstFleet("lab", (key,), engine))
    [model] = yaml.safe_load(text)["spec"]["models"]
    [member] = model["workers"][0]["members"]
    given = [word for word in (*member["engine"]["command"], *member["engine"]["args"]) if not word.startswith("$")]
    assert (model["key"], model["serving"], given) == (key, {"name": "org/a-7B@step3"}, words)
    assert member["resources"]["vram"] == "17Gi", "by the size in its checkpoint's name"
    assert "is the key above" not in text


SNAPSHOT = json.dumps({
    "formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test", "nodes": [
        {"id": name, "name": name, "labels": {"ray.io/accelerator-type": label},
         "resources": {"total": {"GPU": 8, "CPU": 96, "memory": 1 << 40}},
         "gpus": [{"index": at, "model": f"NVIDIA {label}", "memoryTotal": memory << 30} for at in range(8)]}
        for name, label, memory in (("big-1", "H100", 80), ("big-2", "H100", 80), ("small", "L4", 23))]})


def test_the_file_made_from_a_snapshot_is_placed_on_it(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("snapshot.json").write_text(SNAPSHOT)
    made = cli("init", "--inventory", "snapshot.json", "--model", "meta-llama/Llama-3.1-70B", "-o", "prod.yaml")
    assert made.code == 0, made.err
    assert "fleetctl plan -f prod.yaml" in made.err
    text = Path("prod.yaml").read_text()
    assert "#   2 nodes with 8 x NVIDIA H100 of 80Gi, 96 CPUs, 1Ti memory" in text
    assert "name: prod" in text
    assert "--tensor-parallel-size, '8'" in text
    assert cli("fmt", "--check", "prod.yaml").code == 0
    plan = json.loads(cli("plan", "-f", "prod.yaml", "--inventory", "snapshot.json", "--format", "json").out)
    [action] = plan["actions"]
    assert action["members"][0]["node"] == "small", "eight L4 have less memory than four H100"


def test_cards_without_reported_memory_count_only_if_there_are_no_others() -> None:
    def node(name: str, *sizes: int) -> dict[str, object]:
        return {"id": name, "name": name, "labels": {"ray.io/accelerator-type": "H100"},
                "resources": {"total": {"GPU": 8}},
                "gpus": [{"index": at, "memoryTotal": size << 30} for at, size in enumerate(sizes)]}

    seen = Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "x",
                                     "nodes": [node("new"), node("old", *[80] * 8)]})
    [kind] = card_kinds(seen)
    assert kind.memory == 80 << 30
    assert not choose_cards(guessed("m-405B"), "vllm", [kind]).fits


def test_a_named_context_that_fails_is_an_error(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli("context", "set", "lab", "--address", "http://127.0.0.1:1", "--token-env", "NO_SUCH_TOKEN").code == 0
    named = cli("init", "--context", "lab", "--model", "m-7B", "-o", tmp_path / "fleet.yaml")
    assert (named.code, (tmp_path / "fleet.yaml").exists()) == (1, False)
    current = cli("init", "-o", "-")
    assert current.code == 1
    assert "None" not in current.err


def test_an_existing_file_stays_unless_force_is_given(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text("mine")
    refused = cli("init", "--model", "Qwen/Qwen3-8B")
    assert (refused.code, Path("fleet.yaml").read_text()) == (1, "mine")
    assert "--force" in refused.err
    assert cli("init", "--force").code == 0
    assert cli("validate", "-f", "fleet.yaml").code == 0


def test_without_a_cluster_a_model_is_enough(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    nothing = cli("init", "-o", "-")
    assert (nothing.code, nothing.out) == (1, "")
    assert "--model NAME" in nothing.err
    made = cli("init", "-o", "-", "--model", "Qwen/Qwen3-8B", "--engine", "sglang")
    assert made.code == 0, made.err
    assert "sglang.launch_server" in made.out
    assert "without the nodes of a cluster" in made.err
    assert cli("init", "-o", "-", "--model", "m", "--address", "http://127.0.0.1:1").code == 1


def test_the_file_may_be_an_argument_in_a_new_folder(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", tmp_path / "fleets/prod.yaml", "--model", "org/m").code == 0
    assert f"plan -f '{tmp_path}/my fleets/prod.yaml'" in cli(
        "init", tmp_path / "my fleets/prod.yaml", "--model", "org/m").err
    assert cli("validate", tmp_path / "fleets").code == 0
    (tmp_path / "a-file").touch()
    result = cli("init", tmp_path / "a-file/prod.yaml", "--model", "org/m")
    assert (result.code, "cannot write" in result.err) == (1, True)
    assert cli("init", tmp_path / "a.yaml", "--out", tmp_path / "b.yaml", "--model", "org/m").code == 64


def test_three_models_can_be_planned_on_nodes_that_do_not_exist(cli: Cli, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster, no file by hand, and no edit: three commands."""
    monkeypatch.chdir(tmp_path)
    made = cli("inventory", "--add-node", "8xH100 x2", "--add-node", "gpus=4,type=L4,label=pool=l4", "--format", "json")
    assert made.code == 0, made.err
    Path("lab.json").write_text(made.out)
    written = cli("init", "--inventory", "lab.json", *(
        part for name in ("org/a-70B", "org/b-8B", "org/c-1B", "org/c-1B") for part in ("--model", name)))
    assert "fleetctl plan -f fleet.yaml --inventory lab.json" in written.err
    plan = json.loads(cli("plan", "fleet.yaml", "--inventory", "lab.json", "--format", "json").out)
    assert len(plan["actions"]) == 3
    assert plan["blocked"] == []
    held = json.loads(made.out) | {"replicas": [{"model": "org/x", "members": [{"nodeId": "new-3", "gpus": 40000}]}]}
    Path("lab.json").write_text(json.dumps(held))
    plan = json.loads(cli("plan", "fleet.yaml", "--inventory", "lab.json", "--format", "json").out)
    assert {member["node"] for action in plan["actions"] for member in action["members"]} <= {"new-1", "new-2"}
    grown = json.loads(cli("inventory", "--inventory", "lab.json", "--add-node", "like:new-1", "--format", "json").out)
    assert [node["name"] for node in grown["nodes"]] == ["new-1", "new-2", "new-3", "new-4"]
    assert cli("inventory", "--add-node", "8xX9").code == 64
    assert "plans never run short of them" in made.err
    given = cli("inventory", "--add-node", "gpus=4,type=L4,cpus=32,memory=64Gi")
    assert "run short" not in given.err, given.err


@pytest.mark.parametrize(("engine", "blocked", "nodes"), [
    ("vllm", ["org/huge-9000B"], 2), ("sglang", ["org/huge-9000B"], 2),
    ("llama.cpp", ["org/huge-9000B", "org/big-405B"], 0)])
def test_a_model_too_large_for_one_node_is_a_gang_and_one_too_large_for_all_is_reported(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, blocked: list[str], nodes: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.json").write_text(cli("inventory", "--add-node", "8xH100 x4", "--format", "json").out)
    models = ("org/huge-9000B", "org/big-405B", "org/small-8B")
    written = cli("init", "--inventory", "lab.json", "--engine", engine, *(
        part for name in models for part in ("--model", name)))
    assert written.code == 0
    assert [name for name in models if f"{name} does not fit on these cards" in written.err] == blocked
    plan = json.loads(cli("plan", "fleet.yaml", "--inventory", "lab.json", "--format", "json").out)
    assert {row["model"]: row["code"] for row in plan["blocked"]} == dict.fromkeys(blocked, "INSUFFICIENT_VRAM")
    gangs = [action["members"] for action in plan["actions"] if action["model"] == "org/big-405B"]
    assert [(len(members), {member["role"] for member in members}) for members in gangs] == [
        (nodes, {"Leader", "Worker"})][:nodes]


def test_a_guess_is_called_one_and_the_command_that_makes_it_exact_is_given(cli: Cli, tmp_path: Path) -> None:
    written = cli("init", tmp_path / "fleets/prod.yaml", "--model", "Qwen/Qwen3-8B", "--model", "local")
    command = f"fleetctl model describe hf:Qwen/Qwen3-8B@main --out {tmp_path}/fleets/models/Qwen3-8B.json"
    assert f"note: Qwen/Qwen3-8B: its size is a guess from its name, 14.90Gi of weights; to know it, run {command}" in (
        written.err)
    assert "note: local: its name does not tell its size; to know it, run fleetctl model describe SOURCE" in written.err
    text = (tmp_path / "fleets/prod.yaml").read_text()
    assert "# A guess from the model's name, please check: 15 GiB of weights, plus 20% for the cache." in text
    assert "run `fleetctl model describe hf:Qwen/Qwen3-8B@main --out models/Qwen3-8B.json`" in text
    assert "model:" not in yaml.safe_load(text)["spec"]["models"][0], "a guess is no number of the fleet"


def write_description(path: Path, name: str, source: str) -> Description:
    """Write the description of a public model as if it had been read from `source`."""
    model = described(name).model_copy(update={"source": source})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(model.as_json()))
    return model


@pytest.mark.parametrize("way", ["beside", "named"])
def test_a_description_makes_the_shape_exact_and_is_named_in_the_file(cli: Cli, tmp_path: Path, way: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "lab.json").write_text(SNAPSHOT)
    commit = "0123456789" * 4
    file = tmp_path / ("fleets/models/llama-3.1-405b.json" if way == "beside" else "models/big.json")
    write_description(file, "llama-3.1-405b", f"hf:meta-llama/Llama-3.1-405B@{commit}")
    written = cli("init", tmp_path / "fleets/prod.yaml", "--inventory", tmp_path / "lab.json", "--model",
                  "meta-llama/Llama-3.1-405B" if way == "beside" else file)
    assert written.code == 0, written.err
    assert "guess" not in written.err
    text = (tmp_path / "fleets/prod.yaml").read_text()
    [model] = yaml.safe_load(text)["spec"]["models"]
    assert (model["key"], model["model"]) == ("meta-llama/Llama-3.1-405B", {
        "description": "models/llama-3.1-405b.json" if way == "beside" else "../models/big.json"})
    leader, worker = model["workers"][0]["members"]
    assert [leader["resources"]["gpus"], worker["count"], worker["engine"]["args"][0]] == [8, 1, "--headless"]
    assert leader["engine"]["args"][4:10] == [
        "--revision", commit, "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"]
    assert "755.96Gi of weights and one request of" in text
    plan = json.loads(cli("plan", tmp_path / "fleets/prod.yaml", "--inventory", tmp_path / "lab.json", "--format",
                          "json").out)
    assert ([len(action["members"]) for action in plan["actions"]], plan["blocked"], plan["notes"]) == ([2], [], [])


def test_llama_cpp_loads_the_file_that_was_described() -> None:
    source = f"hf:org/tiny-GGUF@{'0123456789' * 4}/Q8_0/tiny.gguf"
    model = described("qwen3-0.6b").model_copy(update={"source": source})
    text = first_fleet(FirstFleet("lab", ("org/tiny-GGUF",), "llama.cpp", cards_of([("L4", 1, 23)]),
                                  described={"org/tiny-GGUF": ("m.json", model)}))
    [member] = yaml.safe_load(text)["spec"]["models"][0]["workers"][0]["members"]
    assert member["engine"]["args"][4:] == ["--hf-file", "Q8_0/tiny.gguf"]


def test_a_source_in_place_of_a_name_and_a_file_that_is_no_description_are_messages(cli: Cli, tmp_path: Path) -> None:
    given = cli("init", tmp_path / "fleet.yaml", "--model", "hf:Qwen/Qwen3-8B@main")
    assert given.code == 64
    assert "describe it first: fleetctl model describe hf:Qwen/Qwen3-8B@main --out" in given.err
    (tmp_path / "x.json").write_text("{}")
    wrong = cli("init", tmp_path / "fleet.yaml", "--model", tmp_path / "x.json")
    assert (wrong.code, "x.json is not the description of a model" in wrong.err) == (1, True)
    missing = cli("init", tmp_path / "fleet.yaml", "--model", tmp_path / "y.json")
    assert (missing.code, "y.json: no such file" in missing.err) == (1, True)
    assert not (tmp_path / "fleet.yaml").exists()


def cards_of(nodes: list[tuple[str, int, int]]) -> Inventory:
    """Return an inventory of nodes, each with the name, number and GiB of its cards."""
    return Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "a test", "nodes": [
        {"id": f"n{at}", "name": f"n{at}", "labels": {"ray.io/accelerator-type": name},
         "resources": {"total": {"GPU": count, "CPU": 96, "memory": 1 << 40}},
         "gpus": [{"index": index, "model": name, "memoryTotal": memory << 30} for index in range(count)]}
        for at, (name, count, memory) in enumerate(nodes)]})


CARDS = {"L4": 23, "A10G": 22, "A100": 80, "H100": 80, "H200": 141, "MI300X": 192}


@pytest.mark.slow
@settings(max_examples=cases(90), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(CARDS)), st.integers(1, 8)), min_size=1, max_size=5),
       st.sampled_from(sorted(FACTS)), st.sampled_from(sorted(ENGINES)))
def test_what_is_written_for_a_described_model_is_placed_on_the_cards_it_was_written_for(
    nodes: list[tuple[str, int]], name: str, engine: Engine
) -> None:
    inventory = cards_of([(card, count, CARDS[card]) for card, count in nodes])
    wanted = FirstFleet("lab", (name,), engine, inventory, described={name: ("m.json", described(name))})
    text = first_fleet(wanted)
    loaded = inspect({"fleet.yaml": text, "m.json": json.dumps(described(name).as_json())})
    assert not loaded.problems, [str(problem) for problem in loaded.problems]
    assert not format_source(SourceBytes("", text.encode())).changed
    plan = plan_for(loaded.sound(), inventory)
    need = needs(wanted)[name]
    assert need is not None
    if need.fits:
        assert (len(plan.actions), plan.blocked, plan.notes) == (1, [], [])
    else:
        assert plan.blocked or plan.notes, "no shape was possible, and the plan says why"
