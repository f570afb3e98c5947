"""Writes a first fleet file: a few models on the cluster's cards, with comments that say what to check.

A model with a description gets the smallest shape that holds it. Of any other its name is a guess of its size.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from posixpath import join
from shlex import quote
from typing import Any

from fleetctl.documents.fleet import API_VERSION, Numbers
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.model import Description
from fleetctl.documents.names import checkpoint_of, revision_of, served_name_in
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import SHARE, count_of, format_bytes, some
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.draft import authored_resources, filled, one_group
from fleetctl.importers.write import MODELINE, block, comment_lines
from fleetctl.sizing import fit
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import Engine, EngineLine
from fleetctl.sizing.groups import in_short
from fleetctl.sizing.origins import REPOSITORY

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
NAMES_SHOWN = 4
HOST, PORT, MODEL = "$(FLEETCTL_HOST)", "$(FLEETCTL_PORT)", "$(FLEETCTL_MODEL)"
GIB = 1 << 30
WITH_CACHE = 1.2
"""Weights and KV cache as a multiple of the weights, where nothing is known of the cache."""
LENGTHS = (32_768, 4_096)
"""The tokens of one request that the cards must hold at least; the shorter one only where the longer does not fit."""
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BM])(?![A-Za-z0-9])", re.IGNORECASE)
_READ_FROM = re.compile(r"hf:([^@]*)@([0-9a-f]{40})(?:/(.*))?")
_WIDTHS = ((0.5, re.compile(r"awq|gptq|int4|[^a-z]?4bit|w4a16|nvfp4|mxfp4", re.IGNORECASE)),
           (1.0, re.compile(r"fp8|int8|8bit|w8a8", re.IGNORECASE)))


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The command line of an engine, and its flags for a revision and a file of the checkpoint.

    `join` and `env` = the flags and variables by which the members of a gang find each other, `worker` = the flags of a
    Worker alone; without `join` an engine runs on one node. All engines answer GET /health.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]
    revision: str = ""
    file: str = ""
    join: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


_RANKS = ("--nnodes", "$(FLEETCTL_GROUP_SIZE)", "--node-rank", "$(FLEETCTL_RANK)")
_ADDRESS = ("--host", HOST, "--port", PORT)
ENGINES: dict[Engine, EngineKind] = {
    "vllm": EngineKind(("vllm", "serve", MODEL), _ADDRESS, "--revision", join=(
        *_RANKS, "--master-addr", "$(FLEETCTL_LEADER_ADDRESS)", "--master-port", "$(FLEETCTL_LEADER_PORT)"),
        worker=("--headless",), env={"VLLM_HOST_IP": HOST}),
    "sglang": EngineKind(("python3", "-m", "sglang.launch_server", "--model-path", MODEL), _ADDRESS,
                         "--revision", join=(*_RANKS, "--dist-init-addr", "$(FLEETCTL_LEADER_ENDPOINT)"),
                         worker=_ADDRESS),
    "llama.cpp": EngineKind(("llama-server", "-hf", MODEL), _ADDRESS, file="--hf-file"),
}


@dataclass(frozen=True, slots=True)
class FirstFleet:
    """The input of a first fleet file; `inventory` None = no cluster was read, no `models` = an example model.

    `described` = what is known of models, by key, each with the path of its description from the fleet file's folder.
    """

    name: str
    models: tuple[str, ...]
    engine: Engine
    inventory: Inventory | None = None
    address: str | None = None
    namespace: str | None = None
    described: Mapping[str, tuple[str, Description]] = field(default_factory=dict)


def first_fleet(wanted: FirstFleet) -> str:
    """Return the text of the fleet file, a fixed point of `fmt`."""
    models: list[dict[str, Any]] = []
    comments: dict[Path, list[str]] = {
        ("metadata", "name"): ["Part of every replica's identity: choose it before the first apply."]}
    for number, (key, need) in enumerate(needs(wanted).items()):
        comments |= _comments(wanted, key, need, number)
        served = served_name_in(key)  # a key of NDIF is no name that an engine or its clients know
        described = {"model": {"description": wanted.described[key][0]}} if key in wanted.described else {}
        models.append({"key": key, "replicas": 1, **({"serving": {"name": served}} if served else {}), **described,
                       "workers": one_group(_members(wanted, key, need))})
    document = {
        "apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": wanted.name},
        "spec": {**filled({"cluster": filled({"address": wanted.address, "namespace": wanted.namespace})}),
                 "models": models},
    }
    header = [MODELINE, "#", *(line for text in _header(wanted) for line in comment_lines(text, 0))]
    return "\n".join(header) + "\n" + block(document, comments)


def needs(wanted: FirstFleet) -> dict[str, Need | None]:
    """Return the cards of each model of the file, by key; None if the cluster has none."""
    kinds = card_kinds(wanted.inventory) if wanted.inventory else [USUAL]
    found = {key: wanted.described[key][1] if key in wanted.described else guessed(key)
             for key in dict.fromkeys(wanted.models or (EXAMPLE_MODEL,))}
    return {key: choose_cards(model, wanted.engine, kinds) if kinds else None for key, model in found.items()}


def _members(wanted: FirstFleet, key: str, need: Need | None) -> list[dict[str, Any]]:
    """Return the members of a model's only group: one, or a Leader and its Workers on as many nodes as it needs."""
    engine = ENGINES[wanted.engine]
    command = [(checkpoint_of(key) or word) if word == MODEL else word for word in engine.command]
    revision, file = revision_of(key), None
    if key in wanted.described and (read := _READ_FROM.fullmatch(wanted.described[key][1].source)):
        _, revision, file = read.groups() if read[1] == (checkpoint_of(key) or key) else ("", revision, None)
    args = [engine.revision, revision] if engine.revision and revision else []
    args += [engine.file, file] if engine.file and file else []
    selector: dict[str, Any] = {}
    if need is None:
        weights = wanted.described[key][1].bytes if key in wanted.described else weights_bytes(key)
        claim = {"cpus": SHARE, "memory": ceil(2 * (weights or GIB) / GIB) * GIB}
    else:
        claim = {"gpus": need.gpus * SHARE, **filled({"vram": need.vram})}
        sizes = zip(fit.SIZE_FLAGS.get(wanted.engine, ()), (need.gpus, need.nodes), strict=False)
        args += [word for flag, size in sizes if size > 1 for word in (flag, str(size))]
        args += [fit.LENGTH_FLAGS[wanted.engine], str(need.length)] if need.length else []
        if need.kind.accelerator and need.is_choice:
            selector = {"nodeSelector": {ACCELERATOR_LABEL: need.kind.accelerator}}
    both = {"resources": authored_resources(claim), **selector}
    ready = {"readiness": {"http": {"path": "/health"}}}
    if need is None or need.nodes == 1:
        return [{**both, "engine": {"command": command, "args": [*engine.args, *args], **ready}}]
    args += engine.join
    env = filled({"env": engine.env})
    return [{"role": "Leader", **both, "engine": {"command": command, "args": [*engine.args, *args], **env, **ready}},
            {"role": "Worker", "count": need.nodes - 1, **both, "engine": {
                "command": command, "args": [*engine.worker, *args], **env}}]


def _header(wanted: FirstFleet) -> Iterator[str]:
    yield "Made by `fleetctl init`. `fleetctl plan -f` on this file shows what would start; `apply` starts it."
    yield "`fleetctl explain models` describes each field, `fleetctl validate -f` checks the file."
    yield "For completion in editors, run `fleetctl schema > fleet.schema.json` in the folder of this file."
    if wanted.inventory:
        nodes = [node for node in wanted.inventory.nodes if node.state == "ALIVE"]
        yield f"The cluster had {count_of(len(nodes), 'node')} on {wanted.inventory.observed_at}:"
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for node in nodes:
            alike[_node_text(node)].append(node.name)
        for text, names in alike.items():
            yield f"  {count_of(len(names), 'node')} with {text}: {some(names, NAMES_SHOWN)}"


def _node_text(node: Node) -> str:
    total = node.resources.total
    models = Counter(gpu.model or "GPU" for gpu in node.gpus) if node.gpus else {"GPU": int(total.gpu)}
    sizes = [gpu.memory_total for gpu in node.gpus if gpu.memory_total]
    of_each = f" of {format_bytes(min(sizes))}" if sizes else ""
    cards = [f"{count} x {model}{of_each}" for model, count in models.items() if count]
    label = node.labels.get(ACCELERATOR_LABEL)
    parts = [*(cards or ["no GPU"]), f"{total.cpu:g} CPUs", f"{format_bytes(total.memory)} memory",
             *([f"{ACCELERATOR_LABEL} {label}"] if label else [])]
    return ", ".join(parts)


def _comments(wanted: FirstFleet, key: str, need: Need | None, number: int) -> dict[Path, list[str]]:
    """Return the comments of one model; those that apply to all models are only above the first."""
    at: Path = ("spec", "models", number)
    member: Path = (*at, "workers", 0, "members", 0)
    size = {(*member, "resources"): [*_about_size(wanted, key, need), *_about_cards(wanted, need)]}
    if number:
        return size
    example = [] if wanted.models else ["An example: replace it with the name of your model."]
    program = ENGINES[wanted.engine].command[0]
    about_key = "" if checkpoint_of(key) else "$(FLEETCTL_MODEL) is the key above, "
    return size | {
        at: [*example, "`replicas` is a minimum: fleetctl starts missing replicas, and never removes one."],
        (*member, "nodeSelector"): ["Several kinds of cards are available; without this line any of them may be used."],
        (*member, "engine"): [f"{program} must be installed on the nodes. fleetctl adds nothing to its command line;",
                              f"{about_key}$(FLEETCTL_PORT) is a free port."],
    }


def _about_size(wanted: FirstFleet, key: str, need: Need | None) -> Iterator[str]:
    if key in wanted.described:
        file, model = wanted.described[key]
        with_request = f" and one request of {need.request:,} tokens" if need and need.request else ""
        yield f"By {file}: {format_bytes(model.bytes)} of weights{with_request}."
        if need and need.length:
            yield f"Of the {model.positions:,} tokens that it can take, {need.length:,} fit beside its weights here."
        return
    weights = weights_bytes(key)
    yield ("The model's name does not tell its size: check how many cards it needs." if weights is None else
           f"A guess from the model's name, please check: {ceil(weights / GIB)} GiB of weights, plus 20% for the "
           "cache.")
    yield f"To know it, run `{describe_command(key)}`, and `fleetctl init --force` again."


def describe_command(key: str, folder: str = ".") -> str:
    """Return the command that describes a model where `fleetctl init` finds it, for a fleet file in `folder`."""
    name = checkpoint_of(key) or key
    source = f"hf:{name}@{revision_of(key) or 'main'}" if REPOSITORY.fullmatch(name) else "SOURCE"
    file = join(folder, description_name(key)).removeprefix("./")
    return f"fleetctl model describe {quote(source)} --out {quote(file)}"


def repository_of(source: str) -> str | None:
    """Return the repository of Hugging Face that a description was read from; None if it was another source."""
    read = _READ_FROM.fullmatch(source)
    return read and read[1]


def description_name(key: str) -> str:
    """Return the file, beside a fleet file, in which `fleetctl init` looks for the description of a model."""
    return f"models/{re.sub(r'[^A-Za-z0-9._-]+', '-', (checkpoint_of(key) or key).rpartition('/')[2])}.json"


def _about_cards(wanted: FirstFleet, need: Need | None) -> Iterator[str]:
    if need is None:
        yield "No node has a GPU, so this claims a CPU and memory; `gpus: 1` would claim a card."
    elif not need.fits:
        yield "It does not fit on this cluster: no shape of its cards holds it. This claims those of the largest node."
        if not ENGINES[wanted.engine].join:
            yield f"{wanted.engine} is given the cards of one node; another engine could use those of several."
    elif need.nodes > 1:
        yield f"No node has cards enough: a Leader and {count_of(need.nodes - 1, 'Worker')}, each on a node of its own."
        yield "`gpus` is per member, `vram` is the memory claimed on each of its cards."
    elif need.kind.memory is None:
        yield "The cluster does not report its cards' memory; set nodes[].gpuMemory to claim `vram` here."
    elif wanted.inventory is None:
        yield f"No cluster was read: this assumes cards of {format_bytes(USUAL.memory or 0)}. `vram` is per card."
    else:
        yield "`gpus` counts whole cards, `vram` is the memory claimed on each; `vram` alone shares a card."


@dataclass(frozen=True, slots=True)
class NodeCards:
    """One kind of card: Ray's name for it, its memory in bytes (None = unknown), the most of them on one node, and the
    number of nodes that have at least the largest power of two up to that.
    """

    accelerator: str | None
    memory: int | None
    on_one_node: int
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Need:
    """The cards that one replica claims: `gpus` on each of `nodes`. `vram` = bytes per card, None = unknown.

    `request` = the tokens of the longest request, `length` = the same where the model's own longest does not fit; 0 =
    not known. `fits` = the nodes have the cards; `is_choice` = they have others, too.
    """

    kind: NodeCards
    gpus: int
    vram: int | None = None
    nodes: int = 1
    request: int = 0
    length: int = 0
    fits: bool = True
    is_choice: bool = False


USUAL = NodeCards(None, 80 * GIB, 8)
"""The cards assumed if no cluster is known."""


def card_kinds(inventory: Inventory) -> list[NodeCards]:
    """Return the kinds of cards on live nodes, the smallest first."""
    counts: defaultdict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    for node in inventory.nodes:
        count = int(node.resources.total.gpu)
        if node.state == "ALIVE" and count:
            sizes = [gpu.memory_total for gpu in node.gpus if gpu.memory_total]
            counts[node.labels.get(ACCELERATOR_LABEL), min(sizes) if sizes else None].append(count)
    # cards that do not report their memory yet are left out if others do
    known = {kind: of_nodes for kind, of_nodes in counts.items() if kind[1]} or counts
    kinds = [NodeCards(*kind, max(of_nodes), sum(count >= _power_of_two(max(of_nodes)) for count in of_nodes))
             for kind, of_nodes in known.items()]
    return sorted(kinds, key=lambda kind: (kind.memory or 0, kind.accelerator or ""))


def weights_bytes(model: str) -> int | None:
    """Return the bytes of a model's weights from the size in its name: 8B, 8x7B, 0.5B-AWQ; None if there is none."""
    name = (checkpoint_of(model) or model).rpartition("/")[2]
    sizes = [int(times or 1) * float(number) * (1e9 if unit in "bB" else 1e6)
             for times, number, unit in _SIZE.findall(name)]
    width = next((width for width, pattern in _WIDTHS if pattern.search(name)), 2.0)
    return ceil(max(sizes) * width) if sizes else None


def guessed(key: str) -> Description | None:
    """Return a model of the size in its name, with room for a cache; None if the name has none."""
    if (weights := weights_bytes(key)) is None:
        return None
    return in_short(Numbers.model_construct(parameters=ceil(weights * WITH_CACHE / 2), weights="bf16"))


def choose_cards(model: Description | None, engine: Engine, kinds: Sequence[NodeCards]) -> Need:
    """Return the shape with the least memory in all that holds the model and one request; without one, the most cards
    that one node has. Of a model, or of cards, without a known size: one card.
    """
    sized = {fit.CardKind(kind.accelerator or "", kind.memory, kind.on_one_node,
                          kind.on_one_node * (kind.nodes if ENGINES[engine].join else 1)): kind
             for kind in kinds if kind.memory}
    is_choice = len(kinds) > 1
    if model is None or not sized:
        return Need(kinds[0], 1, is_choice=is_choice)
    own = EngineLine(engine)
    lines = [replace(own, context=min(length, model.positions) or None) for length in LENGTHS]
    found = next((shape for line in lines if (shape := fit.smallest(model, line, list(sized)))), None)
    largest = max(sized, key=lambda kind: kind.memory * _power_of_two(kind.per_node))
    kind, tensor, nodes = found or (largest, _power_of_two(largest.per_node), 1)
    line = replace(own, tensor=tensor, pipeline=nodes) if engine in fit.SIZE_FLAGS else own
    most = card_need(model, line, cards=tensor * nodes, memory=kind.memory).length or 0
    length = most // 1024 * 1024 if most < model.positions else 0
    least = card_need(model, replace(line, context=length or None), cards=tensor * nodes, memory=kind.memory).least
    vram = ceil(least / GIB) * GIB
    return Need(sized[kind], tensor, min(vram, kind.memory) if found else vram, nodes, length or model.positions,
                length, found is not None, is_choice)


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1
