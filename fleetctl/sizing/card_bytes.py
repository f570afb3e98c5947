"""What a model takes on each card: a bound that is certain, and an estimate.

Pure. The weights of a rank follow vLLM's `QKVParallelLinear`, `VocabParallelEmbedding`, `FusedMoEParallelConfig.make`,
`determine_expert_map` and `get_pp_indices`, which SGLang's layers equal in shape, and `load_tensors` of llama.cpp. The
bound takes stored bytes, without padding and without what an engine may drop; the estimate adds what engines add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from fleetctl.documents.model import Description, Layers
from fleetctl.sizing.engine_line import EngineLine
from fleetctl.sizing.kv_cache import certain_bytes, kinds, longest, request_bytes

GIB = 1 << 30
VLLM_SHARE = 0.92
"""vLLM's `--gpu-memory-utilization` if it is not set (`vllm/config/cache.py`; 0.9 before 0.20)."""
SGLANG_SHARE = 0.88
"""About what SGLang sets `--mem-fraction-static` to (`handle_gpu_memory_settings`), which counts what it keeps free."""
DRIVER_ALONE, DRIVER_OF_MANY = GIB // 2, 3 * GIB // 2
"""A guess: the context of the driver in one process, and with buffers of NCCL if several ranks talk."""
GRAPHS = 6 * GIB // 10
"""A guess: what CUDA graphs take; logs of vLLM say 0.3 to 1.2 GiB."""
LARGE_CARD = 70 * GIB


@dataclass(frozen=True, slots=True)
class CardNeed:
    """Bytes on the fullest card of a replica.

    `bound_weights` and `bound_context` cannot be less on any card, whichever stage of a pipeline it gets. `weights`,
    `context` (one request of the longest length), `working` (activations and graphs), `driver` are estimates, their sum
    is what the engine starts with. `takes` = what it will take of the card; None if the card's memory is not known.
    `limit` = the memory that it limits itself to. `length` = the longest request that fits, None if it is not known.
    `is_certain` = every word of its command line is known, and none may lower the memory.
    """

    bound_weights: int
    bound_context: int
    weights: int
    context: int
    working: int
    driver: int
    takes: int | None
    limit: int | None
    length: int | None
    is_certain: bool

    @property
    def bound(self) -> int:
        """Less is not possible."""
        return self.bound_weights + self.bound_context

    @property
    def least(self) -> int:
        """An estimate of what the engine starts with."""
        return self.weights + self.context + self.working + self.driver


def card_need(model: Description, line: EngineLine, *, cards: int, memory: int | None) -> CardNeed:
    """Return what `model` takes on the fullest of a replica's `cards`, each of `memory` bytes (None = unknown)."""
    alike = {(stage.bound, stage.weights, *kinds(stage.layers).items()): stage for stage in _stages(model, line, cards)}
    stages = list(alike.values())
    narrowed = _narrowed(model, line)
    length = _length(model, line)
    bound = min(((max(stage.bound - narrowed, _narrowest(model, stage.bound)),
                  certain_bytes(model, line, stage.layers, _certain_length(model, line)) // stage.shared_by)
                 for stage in stages), key=sum)
    in_flight = _batch(line, memory) * (line.pipeline + 1 if line.engine == "vllm" else 1)

    def request(stage: _Stage, tokens: int) -> int:
        return request_bytes(model, line, stage.layers, tokens, in_flight=in_flight) // stage.shared_by

    each = narrowed // max(1, line.ranks if line.engine else cards)
    full = max(stages, key=lambda stage: stage.weights + request(stage, length or 0))
    weights = max(full.weights - each, bound[0])
    context = max(bound[1], request(full, length or 0))
    working = _working(model, line, memory) if line.engine else 0
    driver = (DRIVER_OF_MANY if line.ranks > 1 else DRIVER_ALONE) if line.engine else 0
    limit = _limit(line, memory, driver)
    fits = None
    if limit is not None and length:
        room = limit - working
        fits = longest(lambda tried: max(max(stage.weights - each, bound[0]) + request(stage, tried)
                                         for stage in stages) <= room, length)
    takes = None
    if memory is not None and limit is not None:
        own = weights + working + (line.cache_bytes or context)
        takes = min(memory, driver + (limit if fills_a_share(line) else own))
    return CardNeed(bound[0], bound[1], weights, context if line.context != -1 else 0, working, driver, takes, limit,
                    fits, line.engine is not None and not line.uncertain and _keeps_type(model, line))


def fills_a_share(line: EngineLine) -> bool:
    """Return whether the engine takes a set share of any card, whatever the model leaves of it."""
    return line.engine in ("vllm", "sglang") and not line.cache_bytes


@dataclass(frozen=True, slots=True)
class _Stage:
    """The layers of one stage of a pipeline, and the bytes of its weights on one rank.

    `bound` and `weights` are of one card, `layers` of `shared_by` cards, which llama.cpp divides by whole layers.
    """

    layers: list[Layers]
    bound: int
    weights: int
    shared_by: int = 1


def _stages(model: Description, line: EngineLine, cards: int) -> Iterator[_Stage]:
    count = sum(run.count for run in model.layers)
    if line.engine == "llama.cpp":
        yield _on_cards(model, line, count, max(1, cards))
        return
    if line.engine is None:
        part = ceil(model.loaded / max(1, cards))
        yield _Stage(model.layers, part, part)
        return
    rows = -(-model.vocabulary // 64) * 64
    padded = -(-rows // line.tensor) / model.vocabulary if model.vocabulary else 1 / line.tensor
    sizes = _pipeline(count, min(line.pipeline, count + 2))  # further stages have no layers either
    for number, layers in enumerate(_cut(model.layers, sizes)):
        own = sum(run.count * _layer(model, line, run) for run in layers)
        added = sum(run.count * _added(model, line, run) for run in layers)
        is_first, is_last = number == 0, number == len(sizes) - 1
        ends = model.embedding * is_first + (model.embedding if model.tied and not is_first else model.head) * is_last
        vision = 0 if line.text_only else model.vision * is_first
        if line.attention_data and is_first:  # the embedding too is divided over fewer ranks
            added += model.embedding / _attention_ranks(line) - model.embedding / line.tensor
        yield _Stage(_by_kind(layers), int(own + ends / line.tensor),
                     int(own + added + ends * padded + model.outside * (is_first or is_last) + vision))


def _pipeline(layers: int, stages: int) -> list[int]:
    """Return the layers of each stage: what is left goes to the last but one, and backwards; from `get_pp_indices`."""
    sizes = [layers // stages] * stages
    for number in range(2, layers % stages + 2):
        sizes[-number if number <= stages else 0] += 1
    return sizes


def _cut(runs: Sequence[Layers], sizes: Iterable[int]) -> Iterator[list[Layers]]:
    """Yield the next layers for each of these sizes, equal ones in a row as one."""
    left = [*reversed(runs)]
    for wanted in sizes:
        size, taken = wanted, list[Layers]()
        while size and left:
            run = left.pop()
            now = min(size, run.count)
            if now < run.count:
                left.append(run.model_copy(update={"count": run.count - now}))
                run = run.model_copy(update={"count": now})
            taken.append(run)
            size -= now
        yield taken


def _by_kind(runs: Sequence[Layers]) -> list[Layers]:
    """Return the layers with those of one kind as one run, for what their context takes: their bytes mean nothing."""
    alike, counts = {(run.attention, run.state): run for run in runs}, Counter[object]()
    for run in runs:
        counts[run.attention, run.state] += run.count
    return [run.model_copy(update={"count": counts[kind]}) for kind, run in alike.items()]


def _layer(model: Description, line: EngineLine, run: Layers) -> float:
    """Return the bytes of one layer on one rank."""
    kept = max(1, model.kv_heads // _attention_ranks(line)) / max(1, model.kv_heads)
    by_experts = line.experts if line.engine == "sglang" else line.tensor * line.data if line.expert_parallel else 1
    if by_experts > 1 and model.experts:
        experts = run.bytes.experts * ceil(model.experts / by_experts) / model.experts
        experts /= max(1, line.tensor // by_experts) if line.engine == "sglang" else 1
    else:
        experts = run.bytes.experts / (line.tensor * (line.data if line.engine == "vllm" else 1))
    return run.bytes.split / line.tensor + run.bytes.key_value * kept + run.bytes.whole + experts


def _attention_ranks(line: EngineLine) -> int:
    """Return over how many ranks the attention is divided; SGLang's `--enable-dp-attention` gives each a part."""
    return max(1, line.tensor // line.data) if line.attention_data else line.tensor


def _added(model: Description, line: EngineLine, run: Layers) -> float:
    """Return what loading adds to one layer on a rank: absorbed projections of latent attention
    (`MLACommonImpl.process_weights_after_loading`), mxfp4's experts padded for their kernels
    (`mxfp4_round_up_hidden_size_and_intermediate_size`), and attention that SGLang divides over fewer ranks.
    """
    over = _attention_ranks(line)
    added = run.bytes.attention / over - run.bytes.attention / line.tensor
    if model.latent is not None and run.attention is not None:
        added += model.heads / over * (model.key_size + model.value_size) * model.latent.rank * 2
    if model.quantization == "mxfp4" and model.hidden and model.intermediate:
        inner = model.intermediate / line.tensor
        padded = ceil(model.hidden / 256) * 256 * ceil(inner / 128) * 128 / (model.hidden * inner)
        added += run.bytes.experts / line.tensor * (padded - 1)
    return added


def _on_cards(model: Description, line: EngineLine, layers: int, cards: int) -> _Stage:
    """Return what llama.cpp puts on the fullest card: the embedding stays in the host's memory, the last layers
    and the head go to the cards. Without a number of layers it puts there what fits, so nothing is certain.
    """
    wanted = line.layers_on_cards
    count = layers + 1 if wanted in (None, -1) else min(wanted or 0, layers + 1)
    _, runs = _cut(model.layers, (layers + 1 - max(1, count), max(1, count) - 1))
    head = (model.head or model.embedding) if count else 0
    size = ceil((sum(run.count * run.bytes.total for run in runs) + head) / cards)
    return _Stage(_by_kind(runs), 0 if wanted is None else size, size, cards)


def _narrowed(model: Description, line: EngineLine) -> int:
    """Return the bytes by which float32 tensors may shrink on loading: engines take 16 bits unless told otherwise."""
    if line.dtype in ("float32", "float") or line.engine == "llama.cpp":
        return 0
    return min(model.types.get("F32", 0) // 2 + model.types.get("F64", 0) * 3 // 4,
               model.loaded * 3 // 4 if "F64" in model.types else model.loaded // 2)


def _narrowest(model: Description, size: int) -> int:
    """Return the bytes that are left at least of `size` bytes of weights, whichever of them are float32."""
    return size // 4 if "F64" in model.types else size // 2


def _keeps_type(model: Description, line: EngineLine) -> bool:
    """Return whether the weights stay as stored: no other quantization is made of them on loading."""
    return line.quantization is None or line.quantization == model.quantization


def _length(model: Description, line: EngineLine) -> int | None:
    """Return the tokens of the longest request; None if it is not known."""
    if line.context is not None and line.context > 0:
        return line.context
    return model.positions or None


def _certain_length(model: Description, line: EngineLine) -> int:
    """Return the tokens whose context is certainly there: vLLM refuses to start without room for one request of the
    length that it is told, and llama.cpp allocates it. Either may choose a shorter one if it is not told any.
    """
    writes = model.architecture.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel"))
    has_cache = line.engine == "llama.cpp" or (line.engine == "vllm" and writes)
    return max(0, line.context or 0) if has_cache and model.attention_known and not line.uncertain else 0


def _batch(line: EngineLine, memory: int | None) -> int:
    """Return the most tokens of one step, by `get_batch_defaults` of vLLM and the defaults of the others."""
    if line.batched_tokens and line.batched_tokens > 0:
        return line.batched_tokens
    if line.engine == "llama.cpp":
        return 512
    return 8192 if memory is None or memory >= LARGE_CARD else 2048


def _working(model: Description, line: EngineLine, memory: int | None) -> int:
    """Return an estimate of activations, logits and graphs."""
    tokens = _batch(line, memory)
    if line.engine == "llama.cpp":
        return tokens * (model.vocabulary * 4 + 8 * model.hidden * 4)
    sequences = line.sequences or (256 if memory is not None and memory < LARGE_CARD else 1024)
    widest = 2 * model.hidden + 2 * ceil(model.intermediate / line.tensor)
    logits = min(sequences, tokens) * model.vocabulary * 4 * (2 if line.engine == "vllm" else 1)
    return tokens * widest * 2 + logits + (0 if line.eager else GRAPHS)


def _limit(line: EngineLine, memory: int | None, driver: int) -> int | None:
    """Return the bytes for weights, context and activations that the engine limits itself to."""
    if memory is None or line.engine is None:
        return None
    if line.engine == "vllm":
        return memory - driver if line.cache_bytes else int(memory * (line.share or VLLM_SHARE))
    return int((memory - driver) * (line.share or SGLANG_SHARE)) if line.engine == "sglang" else memory - driver
