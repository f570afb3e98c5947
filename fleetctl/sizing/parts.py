"""Sorts a checkpoint's tensors into parts by their names: which layer, and how engines divide them over ranks.

Names are those of the checkpoints that vLLM and SGLang load (transformers' modules) and of GGUF files. What is not
known counts as divided evenly, so that the certain bound never exceeds what an engine loads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from fleetctl.documents.model import Description, Layers
from fleetctl.sizing.architecture import Architecture, LayerKind
from fleetctl.sizing.headers import Tensor

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|blk|block)\.([0-9]{1,6})\.(.*)")
_VISION = re.compile(r"(^|\.)(vision|visual|vit|audio|image|multi_modal|multimodal|mm_|mm\.|v\.blk|speech|aligner|"
                     r"connector|patch_embed|merger|talker|token2wav|code2wav|tts)|vision_|_projector\.")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|token_embd|embeddings?|embed_in|"
                        r"word_embedding)(\.weight|\.word_embeddings\.weight|$)")
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output_layer)\.|^output\.")
_UNUSED = re.compile(r"(rotary_emb\.inv_freq|inv_freq|masked_bias|rope_freqs.*)$|(^|\.)attn\.bias$")
_DRAFT = re.compile(r"(^|\.)(mtp|mtp_block|nextn|eagle|medusa|draft)(\.|_)")
_EXPERTS = re.compile(r"(^|\.)(experts\.|ffn_(gate|up|down|gate_up)_exps|block_sparse_moe\.experts)")
_KEY_VALUE = re.compile(r"(^|\.)(k_proj|v_proj|key_proj|value_proj|wk|wv|k|v|attn_k|attn_v)\.")
_FUSED = re.compile(r"(^|\.)(qkv_proj|qkv|Wqkv|c_attn|query_key_value|attn_qkv|in_proj_qkv|att_proj)\.")
_ATTENTION = re.compile(r"(^|\.)(\w*attn|\w*attention|attn_\w+)\.")
_WHOLE = re.compile(r"(norm|ln_|layernorm|layer_norm|q_a_proj|kv_a_proj|attn_q_a|attn_kv_a|router|e_score_correction|"
                    r"(^|\.)gate\.|ffn_gate_inp|shared_expert_gate|indexer|wq_b|weights_proj|wpe)")
_GPTQ_UNUSED = re.compile(r"\.(qzeros|g_idx)$")
"""What kernels for GPTQ drop after loading: zeros of symmetric weights, the order of columns."""
_NUMBER = re.compile(r"[0-9]+")
_OF_LAYERS = frozenset({"split", "attention", "key_value", "whole", "experts", "fused"})
_SCALE = re.compile(r"(scale_inv|scales?|qzeros|g_idx|absmax|quant_map|quant_state.*|_scale|input_scale|"
                    r"weight_scale.*)$")


@dataclass(slots=True)
class _Layer:
    split: int = 0
    attention: int = 0
    key_value: int = 0
    whole: int = 0
    experts: int = 0


def model_of(source: str, tensors: Sequence[Tensor], architecture: Architecture) -> Description:
    """Return the description of a checkpoint with these tensors."""
    layers = [_Layer() for _ in range(architecture.layers)]
    elsewhere: Counter[str] = Counter()
    alike = [_NUMBER.sub("0", tensor.name) for tensor in tensors]  # there are 100,000 names, and some dozens of kinds
    parts = _parts_of(alike, tensors, architecture)
    for name, tensor in zip(alike, tensors, strict=True):
        part = parts[name]
        found = _LAYER.search(tensor.name) if part in _OF_LAYERS else None
        if found is None:
            elsewhere[part] += tensor.size
        elif int(found[1]) >= len(layers):
            elsewhere["draft"] += tensor.size
        else:
            _add(layers[int(found[1])], part, tensor.size, architecture)
    types: Counter[str] = Counter()
    for tensor in tensors:
        types[tensor.type] += tensor.size
    scales = {name for name in parts if _SCALE.search(name)}
    return Description.model_validate({
        "apiVersion": "fleetctl/v1", "kind": "Model", "source": source, "architecture": architecture.name,
        "parameters": sum(_elements(tensor, architecture.bits)
                          for name, tensor in zip(alike, tensors, strict=True) if name not in scales),
        "bytes": sum(types.values()), "types": dict(sorted(types.items())),
        **({"quantization": architecture.quantization} if architecture.quantization else {}),
        "elementBytes": architecture.element_bytes, "positions": architecture.positions,
        "hidden": architecture.hidden, "intermediate": architecture.intermediate,
        "vocabulary": architecture.vocabulary or _rows(tensors), "heads": architecture.heads,
        "kvHeads": architecture.kv_heads, "keySize": architecture.key_size, "valueSize": architecture.value_size,
        "window": architecture.window, "experts": architecture.experts, "tied": architecture.tied,
        **({"latent": architecture.latent.as_json()} if architecture.latent else {}),
        **({"state": architecture.state.as_json()} if architecture.state else {}),
        "embedding": elsewhere["embedding"], "head": elsewhere["head"], "outside": elsewhere["outside"],
        "vision": elsewhere["vision"], "draft": elsewhere["draft"], "unused": elsewhere["unused"],
        "layers": [run.as_json() for run in _runs(layers, architecture.kinds)],
        "attentionKnown": architecture.known})


def has_head(tensors: Iterable[Tensor]) -> bool:
    """Return whether a checkpoint stores a head beside its embedding."""
    return any(_HEAD.search(tensor.name) for tensor in tensors)


def _parts_of(alike: Sequence[str], tensors: Sequence[Tensor], architecture: Architecture) -> dict[str, str]:
    """Return the part of each name: one of `_OF_LAYERS`, or what `Description` has beside its layers."""
    sizes: Counter[str] = Counter()
    for name, tensor in zip(alike, tensors, strict=True):
        sizes[name] += tensor.size
    stacks: Counter[str] = Counter()
    for name, size in sizes.items():
        if (found := _LAYER.search(name)) and not _VISION.search(name):
            stacks[name[:found.start(1)]] += size
    stack = max(stacks, key=stacks.__getitem__, default="")
    drop_head = architecture.tied and has_head(tensors)
    return {name: _part(name, stack, architecture, drop_head=drop_head) for name in sizes}


def _part(name: str, stack: str, architecture: Architecture, *, drop_head: bool) -> str:
    """Return the part of a tensor; `stack` = what is before the number of a layer in the model that writes text."""
    found = _LAYER.search(name)
    if _UNUSED.search(name) or (architecture.quantization == "gptq" and _GPTQ_UNUSED.search(name)):
        return "unused"
    if _VISION.search(name):
        return "vision"
    if _DRAFT.search(name):
        return "draft"
    if found:
        return _part_of_layer(found[2], architecture) if name[:found.start(1)] == stack else "vision"
    if _HEAD.search(name):
        return "unused" if drop_head else "head"
    return "embedding" if _EMBEDDING.search(name) else "outside"


def _part_of_layer(name: str, architecture: Architecture) -> str:
    """Return the part of a layer's tensor, by the name of its module: its scales are divided as it is."""
    if _EXPERTS.search(name):
        return "experts"
    if _FUSED.search(name) and architecture.heads:
        return "fused"
    if _KEY_VALUE.search(name):
        return "key_value"
    if _WHOLE.search(name):
        return "whole"
    return "attention" if _ATTENTION.search(name) else "split"


def _add(layer: _Layer, part: str, size: int, architecture: Architecture) -> None:
    if part == "fused":
        values = size * 2 * architecture.kv_heads // (architecture.heads + 2 * architecture.kv_heads)
        layer.key_value += values
        layer.split += size - values
        layer.attention += size - values
    elif part == "attention":
        layer.split += size
        layer.attention += size
    else:
        setattr(layer, part, getattr(layer, part) + size)


def _runs(layers: Iterable[_Layer], kinds: Iterable[LayerKind]) -> list[Layers]:
    """Return the layers with equal ones in a row as one entry."""
    runs: list[Layers] = []
    for layer, (kind, state) in zip(layers, kinds, strict=True):
        single = Layers.model_validate({
            "count": 1, **({"attention": kind} if kind else {}), "state": state, "bytes": {
                "split": layer.split, "attention": layer.attention, "keyValue": layer.key_value, "whole": layer.whole,
                "experts": layer.experts}})
        if runs and runs[-1].model_copy(update={"count": 1}) == single:
            runs[-1] = runs[-1].model_copy(update={"count": runs[-1].count + 1})
        else:
            runs.append(single)
    return runs


def _elements(tensor: Tensor, bits: int) -> int:
    """Return the number of weights of a tensor; of packed ones, several share a stored integer."""
    if bits and tensor.type in ("U8", "I8", "I32"):
        return tensor.size * 8 // bits
    return prod(tensor.shape)


def _rows(tensors: Iterable[Tensor]) -> int:
    return next((tensor.shape[0] for tensor in tensors if tensor.shape and _EMBEDDING.search(tensor.name)), 0)
