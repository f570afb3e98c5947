"""What the context of a request takes on a card: keys and values of tokens, states of sequences.

Pure. vLLM gives blocks out of equal pages, SGLang counts tokens of a pool, llama.cpp allocates all cells at start; each
formula names the function upstream that it follows (vLLM 0.32, SGLang 0.5.23, llama.cpp of July 2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fleetctl.documents.model import Description, Layers
from fleetctl.sizing.engine_line import EngineLine

BLOCK = 16
"""vLLM's tokens of a block on GPUs; a backend may raise it, which only rounds."""
SLIDING_SHARE = 0.8
"""SGLang's `--swa-full-tokens-ratio`."""
_MAMBA_2 = ("FalconH1", "GraniteMoeHybrid", "Mamba2", "NemotronH", "Zamba2")
"""Architectures with `MambaMixer2`, which keeps a state more where prefixes are cached: one inside a prompt."""
_NARROWEST = 9 / 16
"""Bytes of an element in nvfp4, with its scales."""
_PADDED = 256
"""llama.cpp's cells of a context come in multiples of this."""
_SEQUENCES = 4
"""llama.cpp's `--parallel`; they share the cells of one context."""


class Pool(NamedTuple):
    """vLLM's cache on one rank: each block of a group is `block_bytes` of it, and holds `block_tokens` tokens.

    `groups` = how many groups of layers of each kind share the blocks.
    """

    block_bytes: int
    block_tokens: int
    groups: Counter[str]


def token_bytes(model: Description, line: EngineLine, *, certain: bool = False) -> float:
    """Return the bytes of one token in one attention layer, on one rank.

    From vLLM's `AttentionSpec` and `MLAAttention.get_kv_cache_spec`, SGLang's `DefaultPoolConfigurator`, llama.cpp's
    constructor of `llama_kv_cache`. `certain` = never more than an engine takes: a quantized checkpoint may ask vLLM
    for a narrow cache (`kv_cache_quant_algo`).
    """
    own: float = min(model.element_bytes, 2)
    if certain and model.quantization and line.engine != "llama.cpp":
        own = _NARROWEST
    keys, values = line.cache_element or own, line.value_element or own
    if model.latent is not None:
        index = model.latent.index
        return (model.latent.rank + model.latent.rope) * keys + (index + index // 128 * 4 if index else 0)
    ranks = line.tensor // line.data if line.attention_data else line.tensor
    heads = max(1, model.kv_heads // max(1, ranks))
    return heads * (model.key_size * keys + model.value_size * values)


def state_bytes(model: Description, line: EngineLine) -> int:
    """Return the bytes of one sequence's state in one layer, on one rank; from vLLM's `MambaStateShapeCalculator`."""
    if model.state is None:
        return 0
    own = min(model.element_bytes, 2)
    size = model.state.convolution * own + model.state.recurrent * (model.state.recurrent_bytes or own)
    return -(-size // line.tensor)


def pool(model: Description, line: EngineLine, layers: Iterable[Layers], *, block: int = BLOCK) -> Pool:
    """Return vLLM's pool for these layers, by `_get_kv_cache_groups_uniform_page_size` and, for layers with a state,
    `_align_hybrid_block_size` of `vllm/platforms/interface.py`.
    """
    counts = kinds(layers)
    if not line.hybrid_cache and "full" in counts:  # `_promote_local_kv_cache_specs`
        counts["full"] += counts.pop("sliding", 0) + counts.pop("chunked", 0)
    of_token = token_bytes(model, line)
    page = of_token * block
    if counts["state"] and len(counts) > 1 and page:
        block *= max(1, -int(-state_bytes(model, line) // page))
        page = of_token * block
    elif counts["state"]:
        page = state_bytes(model, line)
    if not counts:
        return Pool(0, block, Counter())
    least, most = min(counts.values()), max(counts.values())
    size = most if most < 1.5 * least else least
    return Pool(int(size * page), block, Counter({kind: -(-count // size) for kind, count in counts.items()}))


def kinds(layers: Iterable[Layers]) -> Counter[str]:
    """Return the number of layers with each kind of attention, and of those with a state."""
    counts: Counter[str] = Counter()
    for run in layers:
        if run.attention is not None:
            counts[run.attention] += run.count
        if run.state:
            counts["state"] += run.count
    return counts


def request_bytes(model: Description, line: EngineLine, layers: list[Layers], tokens: int, *, in_flight: int,
                  block: int = BLOCK) -> int:
    """Return what one request of `tokens` takes on a rank with these layers; `in_flight` = tokens of the steps that
    vLLM may have scheduled at once (`max_admission_blocks_per_request`; `MambaSpec.max_memory_usage_bytes`).
    """
    if line.engine == "vllm":
        size, block, groups = pool(model, line, layers, block=block)
        in_window = {"sliding": min(model.window - 1 + in_flight, tokens),
                     "chunked": min(model.window + in_flight, tokens)}
        of_kind = {kind: -(-in_window.get(kind, tokens) // block) + (kind == "sliding") for kind in groups}
        caches_prefixes = line.prefix_cache and len(groups) > 1  # it does not without attention
        of_kind["state"] = 1 + caches_prefixes * (1 + model.architecture.startswith(_MAMBA_2))
        return size * sum(count * of_kind[kind] for kind, count in groups.items())
    counts = kinds(layers)
    of_token = token_bytes(model, line)
    local = counts["sliding"] + counts["chunked"]
    if line.engine == "sglang":
        share = SLIDING_SHARE if line.hybrid_cache else 1.0
        return int(tokens * of_token * (counts["full"] + share * local)) + counts["state"] * state_bytes(model, line)
    sequences = line.sequences if line.sequences and line.sequences > 0 else _SEQUENCES
    cells = -(-tokens // _PADDED) * _PADDED
    in_one = -(-(model.window * sequences + in_flight) // _PADDED) * _PADDED
    window = cells if line.full_sliding_cache else min(cells, in_one)
    states = counts["state"] * sequences * state_bytes(model, line)
    return int(of_token * (cells * counts["full"] + window * local)) + states


def certain_bytes(model: Description, line: EngineLine, layers: Iterable[Layers], tokens: int) -> int:
    """Return what one request of `tokens` cannot be below: no block is rounded up, no step is scheduled ahead."""
    counts = kinds(layers)
    local = min(tokens, model.window) * (counts["sliding"] + counts["chunked"])
    return int(token_bytes(model, line, certain=True) * (tokens * counts["full"] + local))


def longest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest length up to `most` for which `fits` is true; 0 if it is true for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
