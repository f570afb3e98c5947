"""Writes a first fleet file: a few models on the cluster's cards, with comments that say what to check."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from fleetctl.documents.fleet import API_VERSION
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.names import checkpoint_of, revision_of, served_name_in
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import SHARE, amount_of, count_of, format_bytes, some
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.draft import authored_resources, filled, one_group
from fleetctl.importers.write import MODELINE, block, comment_lines

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
NAMES_SHOWN = 4
HOST, PORT, MODEL = "$(FLEETCTL_HOST)", "$(FLEETCTL_PORT)", "$(FLEETCTL_MODEL)"
GIB = 1 << 30
USABLE, WITH_CACHE = 0.9, 1.2
"""The part of a card that an engine may use; weights and KV cache as a multiple of the weights."""
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BM])(?![A-Za-z0-9])", re.IGNORECASE)
_WIDTHS = ((0.5, re.compile(r"awq|gptq|int4|[^a-z]?4bit|w4a16|nvfp4|mxfp4", re.IGNORECASE)),
           (1.0, re.compile(r"fp8|int8|8bit|w8a8", re.IGNORECASE)))


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The command line of an engine, and its flags for the number of cards and for a revision of the checkpoint.

    All engines answer GET /health.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]
    split: str = ""
    revision: str = ""


ENGINES = {
    "vllm": EngineKind(("vllm", "serve", MODEL), ("--host", HOST, "--port", PORT), "--tensor-parallel-size",
                       "--revision"),
    "sglang": EngineKind(("python3", "-m", "sglang.launch_server", "--model-path", MODEL),
                         ("--host", HOST, "--port", PORT), "--tp-size", "--revision"),
    "llama.cpp": EngineKind(("llama-server", "-hf", MODEL), ("--host", HOST, "--port", PORT)),
}


@dataclass(frozen=True, slots=True)
class FirstFleet:
    """The input of a first fleet file; `inventory` None = no cluster was read, no `models` = an example model."""

    name: str
    models: tuple[str, ...]
    engine: str
    inventory: Inventory | None = None
    address: str | None = None
    namespace: str | None = None


def first_fleet(wanted: FirstFleet) -> str:
    """Return the text of the fleet file, a fixed point of `fmt`."""
    kinds = _kinds(wanted)
    models: list[dict[str, Any]] = []
    comments: dict[Path, list[str]] = {
        ("metadata", "name"): ["Part of every replica's identity: choose it before the first apply."]}
    for key in dict.fromkeys(wanted.models or (EXAMPLE_MODEL,)):
        weights = weights_bytes(key)
        need = choose_cards(weights, kinds) if kinds else None
        comments |= _comments(wanted, key, need, weights, len(models))
        accelerator = need.kind.accelerator if need and len(kinds) > 1 else None
        claim = ({"gpus": need.gpus * SHARE, **filled({"vram": need.vram})} if need else
                 {"cpus": SHARE, "memory": ceil(2 * (weights or GIB) / GIB) * GIB})
        engine = ENGINES[wanted.engine]
        revision = [engine.revision, at] if engine.revision and (at := revision_of(key)) else []
        split = [engine.split, str(need.gpus)] if need and engine.split and need.gpus > 1 else []
        served = served_name_in(key)  # a key of NDIF is no name that an engine or its clients know
        command = [(checkpoint_of(key) or word) if word == MODEL else word for word in engine.command]
        member = {"resources": authored_resources(claim),
                  **({"nodeSelector": {ACCELERATOR_LABEL: accelerator}} if accelerator else {}),
                  "engine": {"command": command, "args": [*engine.args, *revision, *split],
                             "readiness": {"http": {"path": "/health"}}}}
        models.append({"key": key, "replicas": 1, **({"serving": {"name": served}} if served else {}),
                       "workers": one_group([member])})
    document = {
        "apiVersion": API_VERSION, "kind": "Fleet", "metadata": {"name": wanted.name},
        "spec": {**filled({"cluster": filled({"address": wanted.address, "namespace": wanted.namespace})}),
                 "models": models},
    }
    header = [MODELINE, "#", *(line for text in _header(wanted) for line in comment_lines(text, 0))]
    return "\n".join(header) + "\n" + block(document, comments)


def too_large(wanted: FirstFleet) -> list[str]:
    """Return the models that do not fit on any single node."""
    kinds = _kinds(wanted)
    return [key for key in dict.fromkeys(wanted.models) if kinds and not choose_cards(weights_bytes(key), kinds).fits]


def _kinds(wanted: FirstFleet) -> list[CardKind]:
    return card_kinds(wanted.inventory) if wanted.inventory else [USUAL]


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


def _comments(
    wanted: FirstFleet, key: str, need: Need | None, weights: int | None, number: int
) -> dict[Path, list[str]]:
    """Return the comments of one model; those that apply to all models are only above the first."""
    at: Path = ("spec", "models", number)
    member: Path = (*at, "workers", 0, "members", 0)
    guess = ("The model's name does not tell its size: check how many cards it needs." if weights is None else
             f"Guessed from the model's name, please check: {ceil(weights / GIB)} GiB of weights, plus 20% for the "
             "cache.")
    size = {(*member, "resources"): [guess, *_about_cards(wanted, need)]}
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


def _about_cards(wanted: FirstFleet, need: Need | None) -> Iterator[str]:
    if need is None:
        yield "No node has a GPU, so this claims a CPU and memory; `gpus: 1` would claim a card."
    elif not need.fits:
        yield f"It does not fit on one node: none has more than {amount_of(need.gpus * SHARE, 'GPU')}."
        yield "Make it a gang over several nodes, with a Leader and its Workers: `fleetctl explain members.role`."
    elif need.kind.memory is None:
        yield "The cluster does not report its cards' memory; set nodes[].gpuMemory to claim `vram` here."
    elif wanted.inventory is None:
        yield f"No cluster was read: this assumes cards of {format_bytes(USUAL.memory or 0)}. `vram` is per card."
    else:
        yield "`gpus` counts whole cards, `vram` is the memory claimed on each; `vram` alone shares a card."


@dataclass(frozen=True, slots=True)
class CardKind:
    """One kind of card: Ray's name for it, its memory in bytes (None = unknown), and the most of them on one node."""

    accelerator: str | None
    memory: int | None
    on_one_node: int


@dataclass(frozen=True, slots=True)
class Need:
    """The cards that one replica claims. `vram` = bytes per card, None = unknown; `fits` = some node has them all."""

    kind: CardKind
    gpus: int
    vram: int | None
    fits: bool = True


USUAL = CardKind(None, 80 * GIB, 8)
"""The cards assumed if no cluster is known."""


def card_kinds(inventory: Inventory) -> list[CardKind]:
    """Return the kinds of cards on live nodes, the smallest first."""
    most: dict[tuple[str | None, int | None], int] = {}
    for node in inventory.nodes:
        count = int(node.resources.total.gpu)
        if node.state == "ALIVE" and count:
            sizes = [gpu.memory_total for gpu in node.gpus if gpu.memory_total]
            kind = (node.labels.get(ACCELERATOR_LABEL), min(sizes) if sizes else None)
            most[kind] = max(count, most.get(kind, 0))
    # cards that do not report their memory yet are left out if others do
    known = {kind: count for kind, count in most.items() if kind[1]} or most
    return sorted((CardKind(*kind, count) for kind, count in known.items()),
                  key=lambda kind: (kind.memory or 0, kind.accelerator or ""))


def weights_bytes(model: str) -> int | None:
    """Return the bytes of a model's weights from the size in its name: 8B, 8x7B, 0.5B-AWQ; None if there is none."""
    name = (checkpoint_of(model) or model).rpartition("/")[2]
    sizes = [int(times or 1) * float(number) * (1e9 if unit in "bB" else 1e6)
             for times, number, unit in _SIZE.findall(name)]
    width = next((width for width, pattern in _WIDTHS if pattern.search(name)), 2.0)
    return ceil(max(sizes) * width) if sizes else None


def choose_cards(weights: int | None, kinds: Sequence[CardKind]) -> Need:
    """Return the fewest cards that hold the model, a power of two on one node, of the smallest of these `kinds`."""
    if weights is None:
        return Need(kinds[0], 1, None)
    counts = [1 << power for power in range(max(kind.on_one_node for kind in kinds).bit_length())]
    for gpus in counts:
        for kind in kinds:
            if gpus <= kind.on_one_node and _per_card(weights, gpus) <= USABLE * (kind.memory or float("inf")):
                return Need(kind, gpus, _per_card(weights, gpus) if kind.memory else None)
    largest = max(kinds, key=lambda kind: (kind.memory or 0) * kind.on_one_node)
    vram = _per_card(weights, largest.on_one_node) if largest.memory else None
    return Need(largest, largest.on_one_node, vram, fits=False)


def _per_card(weights: int, gpus: int) -> int:
    return ceil(weights * WITH_CACHE / gpus / GIB) * GIB
