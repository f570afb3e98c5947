"""Whether a model fits on the cards it is given, in words with the arithmetic, and the smallest shape that holds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple

from fleetctl.documents.model import Layers, Model
from fleetctl.documents.quantity import format_bytes
from fleetctl.sizing.card_bytes import CardNeed, card_need
from fleetctl.sizing.engine_line import Engine, EngineLine

SIZE_FLAGS: dict[Engine, tuple[str, str]] = {
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size"), "sglang": ("--tp-size", "--pp-size")}
MOST_CARDS = 1_024


class CardKind(NamedTuple):
    """A kind of card of the fleet: its name, memory in bytes, the most on one node, and the number in the fleet."""

    name: str
    memory: int
    per_node: int
    in_fleet: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of a model on a kind of card.

    `kind`: certain = it cannot start; likely = by the estimate it cannot, or not one request of the longest length
    fits; fits. `text` = one sentence with the arithmetic, `remedy` = what would hold it, "" if nothing would.
    """

    kind: Literal["certain", "likely", "fits"]
    need: CardNeed
    text: str = ""
    remedy: str = ""


def judge(model: Model, line: EngineLine, *, cards: int, card: CardKind, fleet: Iterable[CardKind] = ()) -> Fit:
    """Return whether `model` fits on each of a replica's `cards`; `fleet` = the kinds of cards for the remedy."""
    need = card_need(model, line, cards=cards, memory=card.memory)
    on = f"{card.name} has {format_bytes(card.memory)}"
    ranks = line.ranks if line.engine else cards
    share = need.limit if line.engine == "vllm" and line.share and not line.cache_bytes else None
    most = card.memory if share is None else share
    if need.bound > most:
        context = (f" and {format_bytes(need.bound_context)} for one request of {line.context:,} tokens"
                   if need.bound_context else "")
        limit = "" if share is None else f", of which the engine takes {line.share:g}"
        return Fit("certain" if need.is_certain else "likely", need,
                       f"{format_bytes(need.bound_weights)} of weights{context} on "
                       f"{'its card' if ranks == 1 else f'each of its {ranks} cards'}, and {on}{limit}",
                       " or ".join(_shapes(model, line, fleet)))
    if need.limit is None or (not need.length and not model.positions):
        return Fit("fits", need)
    room = need.limit - need.weights - need.working
    parts = (f"{format_bytes(need.weights)} of weights and about {format_bytes(need.working)} for activations leave "
             f"{format_bytes(max(0, room))} of the {format_bytes(need.limit)} that the engine limits itself to")
    if room <= 0:
        return Fit("likely", need, f"{parts}: it would not start", " or ".join(_shapes(model, line, fleet)))
    wanted = line.context if line.context and line.context > 0 else model.positions
    if line.context != -1 and need.length is not None and wanted and need.length < wanted:
        return Fit("likely", need, f"{parts}; one request of {wanted:,} tokens takes {format_bytes(need.context)}",
                       f"a length of {need.length:,} fits" if need.length else "")
    return Fit("fits", need)


def _shapes(model: Model, line: EngineLine, fleet: Iterable[CardKind]) -> Iterator[str]:
    """Yield the smallest shape that holds the model as stored, and in fp8 if that takes fewer cards."""
    if line.engine not in SIZE_FLAGS:
        return
    kinds = sorted(fleet, key=lambda kind: kind.memory)
    as_stored = smallest(model, line, kinds)
    if as_stored is not None:
        kind, tensor, pipeline = as_stored
        flags = zip(SIZE_FLAGS[line.engine], (tensor, pipeline), strict=True)
        words = ", ".join(f"{flag} {size}" for flag, size in flags if size > 1)
        yield f"{tensor * pipeline} x {kind.name}{f' with {words}' if words else ''}"
    if model.quantization is None and (narrow := smallest(_halved(model), line, kinds)) is not None:
        kind, tensor, pipeline = narrow
        if as_stored is None or tensor * pipeline * kind.memory < as_stored[1] * as_stored[2] * as_stored[0].memory:
            yield f"{tensor * pipeline} x {kind.name} with a checkpoint in fp8"


def smallest(model: Model, line: EngineLine, kinds: Sequence[CardKind]) -> tuple[CardKind, int, int] | None:
    """Return the kind of card and the sizes of the tensor and pipeline parallel shape with the least memory in all
    that holds `model`; None if none does.
    """
    found: list[tuple[int, int, CardKind, int, int]] = []
    layers, held = sum(run.count for run in model.layers), sum(run.count * run.bytes.total for run in model.layers)
    for kind in kinds:
        limit = card_need(model, line, cards=1, memory=kind.memory).limit or kind.memory
        tensor = 1
        while tensor <= min(kind.per_node, kind.in_fleet, MOST_CARDS):
            least = max(1, held // (tensor * max(1, limit)))
            most = 1 if 2 * tensor <= kind.per_node else min(
                kind.in_fleet // kind.per_node, layers, MOST_CARDS // tensor)
            for nodes in range(least, most + 1) if not model.heads or model.heads % tensor == 0 else ():
                tried = replace(line, tensor=tensor, pipeline=nodes, data=1, experts=min(line.experts, tensor))
                if card_need(model, tried, cards=tensor * nodes, memory=kind.memory).least <= limit:
                    found.append((tensor * nodes * kind.memory, nodes, kind, tensor, nodes))
                    break
            tensor *= 2
    return min(found)[2:] if found else None


def _halved(model: Model) -> Model:
    """Return the model with its layers' bytes at half: what a checkpoint in fp8 has, about."""
    def half(run: Layers) -> Layers:
        return run.model_copy(update={"bytes": run.bytes.model_copy(update={
            part: ceil(getattr(run.bytes, part) / 2) for part in ("split", "attention", "key_value", "experts")})})

    return model.model_copy(update={"layers": [half(run) for run in model.layers], "quantization": "fp8"})
