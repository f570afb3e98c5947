"""Whether a model fits on the cards it is given, in words with the arithmetic, and the smallest shape that holds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple

from fleetctl.documents.model import Description, Layers
from fleetctl.documents.quantity import format_bytes, some
from fleetctl.sizing.card_bytes import CardNeed, card_need
from fleetctl.sizing.engine_line import Engine, EngineLine

MOST_CARDS = 1_024
SIZE_FLAGS: dict[Engine, tuple[str, str]] = {
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size"), "sglang": ("--tp-size", "--pp-size")}
LENGTH_FLAGS: dict[Engine, str] = {
    "vllm": "--max-model-len", "sglang": "--context-length", "llama.cpp": "--ctx-size"}
MOST_WORDS = 3


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
    fits; fits. `text` = one sentence with the arithmetic, `remedy` = another one with what would hold it, "" if nothing
    would.
    """

    kind: Literal["certain", "likely", "fits"]
    need: CardNeed
    text: str = ""
    remedy: str = ""


def judge(model: Description, line: EngineLine, *, cards: int, card: CardKind, fleet: Iterable[CardKind] = ()) -> Fit:
    """Return whether `model` fits on each of a replica's `cards`; `fleet` = the kinds of cards for the remedy."""
    need = card_need(model, line, cards=cards, memory=card.memory)
    if card.memory < _least_memory(need, line):
        return Fit("certain" if need.is_certain else "likely", need, _too_small(need, line, cards, card),
                   _remedy(model, line, fleet, need.length if need.bound_context else None))
    if need.limit is None or (not need.length and not model.positions):
        return Fit("fits", need)
    room = need.limit - need.weights - need.working
    parts = (f"{format_bytes(need.weights)} of weights and about {format_bytes(need.working)} for activations leave "
             f"{format_bytes(max(0, room))} of the {format_bytes(need.limit)} that the engine limits itself to")
    if room <= 0:
        return Fit("likely", need, f"{parts}: it would not start", _remedy(model, line, fleet))
    wanted = line.context if line.context and line.context > 0 else model.positions
    if line.context != -1 and need.length is not None and wanted and need.length < wanted:
        shorter = f"it would fit with {LENGTH_FLAGS[line.engine]} {need.length}" if need.length and line.engine else ""
        return Fit("likely", need, f"{parts}; one request of {wanted:,} tokens takes {format_bytes(need.context)}",
                   shorter)
    return Fit("fits", need)


def least_card(model: Description, line: EngineLine, *, cards: int) -> int:
    """Return the memory of the smallest cards that are not certainly too small, in bytes; 0 if nothing is certain."""
    need = card_need(model, line, cards=cards, memory=None)
    return _least_memory(need, line) if need.is_certain else 0


def _least_memory(need: CardNeed, line: EngineLine) -> int:
    """Return the memory of the smallest card with room for the bound, in the share of it that the engine takes."""
    if not _limits_itself(line):
        return need.bound
    memory, more = ceil(need.bound / (line.share or 1)), 1
    while int(memory * (line.share or 1)) < need.bound:  # of numbers that no card has, fractions are far apart
        memory, more = memory + more, 2 * more
    return memory


def _limits_itself(line: EngineLine) -> bool:
    return line.engine == "vllm" and bool(line.share) and not line.cache_bytes


def _too_small(need: CardNeed, line: EngineLine, cards: int, card: CardKind) -> str:
    """Return the arithmetic of the bound, and why it is not certain."""
    ranks = line.ranks if line.engine in SIZE_FLAGS else cards
    context = (f" and {format_bytes(need.bound_context)} for one request of {line.context:,} tokens"
               if need.bound_context else "")
    if ranks == cards:
        on = "its card" if cards == 1 else f"each of its {cards} cards"
    else:
        on = f"each of {ranks} ranks" if ranks > 1 else f"the one card that its flags use of {cards}"
    limit = f", of which the engine takes {line.share:g}" if _limits_itself(line) else ""
    flags = tuple(word for word in line.uncertain if word.startswith("-"))
    words = flags or line.uncertain or (("--quantization",) if not need.is_certain else ())
    doubt = f"; not certain because of {some(words, MOST_WORDS)}" if words else ""
    return (f"{format_bytes(need.bound_weights)} of weights{context} on {on}, and {card.name} has "
            f"{format_bytes(card.memory)}{limit}{doubt}")


def _remedy(model: Description, line: EngineLine, fleet: Iterable[CardKind], length: int | None = None) -> str:
    """Return on what shapes the model would fit, and with what `length` of a request, if any; "" if none is known."""
    shapes = "; or ".join(_shapes(model, line, fleet))
    ways = [*([f"on {shapes}"] if shapes else []),
            *([f"with {LENGTH_FLAGS[line.engine]} {length}"] if length and line.engine else [])]
    return f"it would fit {'; or '.join(ways)}" if ways else ""


def _shapes(model: Description, line: EngineLine, fleet: Iterable[CardKind]) -> Iterator[str]:
    """Yield the smallest shape that holds the model as stored, and in fp8 if that takes fewer cards."""
    if line.engine not in SIZE_FLAGS:
        return
    kinds = sorted(fleet, key=lambda kind: kind.memory)
    size_flags, as_stored = SIZE_FLAGS[line.engine], smallest(model, line, kinds)

    def words(sizes: tuple[int, int]) -> str:
        flags = " ".join(f"{flag} {size}" for flag, size in zip(size_flags, sizes, strict=True) if size > 1)
        return f", {flags}" if flags else ""

    if as_stored is not None:
        kind, tensor, pipeline = as_stored
        yield f"{tensor * pipeline} x {kind.name}{words((tensor, pipeline))}"
    if model.quantization is None and (narrow := smallest(_halved(model), line, kinds)) is not None:
        kind, tensor, pipeline = narrow
        if as_stored is None or tensor * pipeline * kind.memory < as_stored[1] * as_stored[2] * as_stored[0].memory:
            of = "" if as_stored and as_stored[0] == kind else f" x {kind.name}"
            yield f"{tensor * pipeline}{of} with fp8{words((tensor, pipeline))}"


def smallest(model: Description, line: EngineLine, kinds: Sequence[CardKind]) -> tuple[CardKind, int, int] | None:
    """Return the kind of card and the sizes of the tensor and pipeline parallel shape with the least memory in all
    that holds `model`; None if none does. llama.cpp divides layers, not heads, and has no flags for it.
    """
    has_sizes = line.engine in SIZE_FLAGS
    found: list[tuple[int, int, CardKind, int, int]] = []
    layers, held = sum(run.count for run in model.layers), sum(run.count * run.bytes.total for run in model.layers)
    for kind in kinds:
        limit = card_need(model, line, cards=1, memory=kind.memory).limit or kind.memory
        tensor = 1
        while tensor <= min(kind.per_node, kind.in_fleet, MOST_CARDS):
            least = max(1, held // (tensor * max(1, limit)))
            most = 1 if 2 * tensor <= kind.per_node else min(
                kind.in_fleet // kind.per_node, layers, MOST_CARDS // tensor)
            divides = not has_sizes or not model.heads or model.heads % tensor == 0
            for nodes in range(least, most + 1) if divides else ():
                tried = replace(line, tensor=tensor, pipeline=nodes, data=1, experts=min(line.experts, tensor)
                                ) if has_sizes else line
                need = card_need(model, tried, cards=tensor * nodes, memory=kind.memory)
                room = kind.memory - need.driver if need.limit is None else need.limit
                if need.least - need.driver <= room:
                    found.append((tensor * nodes * kind.memory, nodes, kind, tensor, nodes))
                    break
            tensor *= 2
    return min(found)[2:] if found else None


def _halved(model: Description) -> Description:
    """Return the model with its layers' bytes at half: what a checkpoint in fp8 has, about."""
    def half(run: Layers) -> Layers:
        return run.model_copy(update={"bytes": run.bytes.model_copy(update={
            part: ceil(getattr(run.bytes, part) / 2) for part in ("split", "attention", "key_value", "experts")})})

    return model.model_copy(update={"layers": [half(run) for run in model.layers], "quantization": "fp8"})
