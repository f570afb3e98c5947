"""Reads `config.json`, or the metadata of a GGUF file: layers, heads, kinds of attention, states, experts.

Names of keys are those of transformers (https://github.com/huggingface/transformers) and of llama.cpp
(https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py). A number is a claim: one that no model
can have is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.model import MOST_LAYERS, Attention, Latent, State
from fleetctl.sizing.headers import MOST_SHOWN, shown

_MOST = 1 << 40
_KINDS: dict[str, Attention] = {
    "full_attention": "full", "attention": "full", "full": "full", "sliding_attention": "sliding",
    "sliding": "sliding", "chunked_attention": "chunked", "deepseek_sparse_attention": "full"}
_STATES = ("linear_attention", "mamba", "mamba2", "recurrent", "conv")
_PLAIN = re.compile(
    r"llama|llama4(_text)?|mistral|mixtral|ministral|qwen(2|2_moe|3|3_moe|3_next|3_5|3_5_moe|2_vl|2_5_vl|3_vl|3_vl_moe)"
    r"(_text)?|gemma2?|gemma3(_text)?|deepseek_v[23]|kimi_k2|glm4(_moe)?|gpt_oss|phi3?|phimoe|granite(moe|moehybrid)?|"
    r"jamba|nemotron(_h)?|falcon_h1|(falcon_)?mamba|mamba2|gpt2|gpt_neox|gptj|opt|bloom|starcoder2|cohere2?|olmo[23]?|"
    r"olmoe|smollm3|"
    r"stablelm|internlm2|minimax_m2|ernie4_5(_moe)?|seed_oss|apertus|arcee|exaone")
"""Types whose KV cache is as read here. Others may share it between layers, leave layers out, or hold other heads."""
_PLAIN_FILES = re.compile(
    r"llama|qwen(2|2moe|3|3moe|3next|35|35moe)|gemma[23]?|phi3|starcoder2|command-r|cohere2|gpt-oss|deepseek2|glm4(moe)?|"
    r"granite(moe)?|olmo2|olmoe|stablelm|gpt2|mamba2?|jamba|falcon-h1|nemotron_h|internlm2|minimax-m2|ernie4_5(-moe)?|"
    r"seed_oss")
"""The same by the names of llama.cpp."""
_TIED = re.compile(
    r"gemma|gpt2|gpt_bigcode|cohere|bloom|falcon(?!_h1)|mpt|opt|lfm2|starcoder2|smollm3|ernie|jetmoe|mamba(?!2)|granite_swa|"
    r"minicpm3|zamba|recurrent_gemma|vaultgemma|paligemma|hunyuan_vl|qwen2_5_omni|qwen3_vl_moe|t5|bart|whisper|xglm|biogpt")
"""Types whose head is the embedding unless a file says otherwise, by the defaults of transformers."""
LayerKind = tuple[Attention | None, bool]
"""The attention of a layer, if it has a KV cache, and whether it keeps a state."""
_FULL: LayerKind = ("full", False)
_STATE: LayerKind = (None, True)
_TYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "half": 2, "float": 4}


class ConfigError(Exception):
    """The configuration is not one of a model that can be described; the message says why."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a configuration says; sizes in elements; `bits` of a packed weight, 0 = none is packed."""

    name: str
    hidden: int
    vocabulary: int
    positions: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    kinds: tuple[LayerKind, ...]
    window: int = 0
    latent: Latent | None = None
    state: State | None = None
    experts: int = 0
    intermediate: int = 0
    tied: bool = False
    quantization: str | None = None
    bits: int = 0
    element_bytes: int = 2
    known: bool = True

    @property
    def layers(self) -> int:
        """The number of layers, without those that predict further tokens."""
        return len(self.kinds)


class _Config:
    """A mapping with claims: looks a number up under each of some names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def number(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or (
                    isinstance(value, float) and not value.is_integer()):
                raise ConfigError(f"{name} is {shown(repr(value))}, not a whole number")
            if not 0 <= value <= _MOST:
                raise ConfigError(f"{name} is {shown(repr(value))}, which no model has")
            return int(value)
        if default is None:
            raise ConfigError(f"it has no {' or '.join(names)}")
        return default

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name, default)
        return value if isinstance(value, bool) else default

    def texts(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def from_config(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture in a `config.json`; raises ConfigError."""
    nested = next((value for name in ("text_config", "language_config", "llm_config", "thinker_config")
                   if isinstance(value := config.get(name), Mapping)), None)
    if nested is not None and isinstance(inner := nested.get("text_config"), Mapping):
        nested = inner
    text = _Config({**config, **nested} if nested is not None else config)
    layers = text.number("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if not 0 < layers <= MOST_LAYERS:
        raise ConfigError(f"it has {layers} layers")
    hidden = text.number("hidden_size", "n_embd", "d_model")
    heads = text.number("num_attention_heads", "n_head", "n_heads", default=0)
    kv_heads = 1 if text.flag("multi_query") else text.number("num_key_value_heads", "n_head_kv", "num_kv_heads",
                                                             default=heads)
    size = text.number("head_dim", "attention_head_dim", default=hidden // heads if heads else 0)
    latent = None
    if rank := text.number("kv_lora_rank", default=0):
        latent = Latent(rank=rank, rope=text.number("qk_rope_head_dim", default=0),
                        index=text.number("index_head_dim", default=0))
    kinds, known = _kinds(text, layers)
    model = str(text.values.get("model_type", ""))
    names = config.get("architectures")
    quantized = config.get("quantization_config") or text.values.get("quantization_config")
    dtype = next((value for key in ("torch_dtype", "dtype") if isinstance(value := text.values.get(key), str)), "")
    return Architecture(
        name=_name(names[0] if isinstance(names, list) and names else model),
        hidden=hidden, vocabulary=text.number("vocab_size", default=0), heads=heads, kv_heads=kv_heads,
        positions=text.number("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", default=0),
        key_size=size if latent is None else text.number("qk_nope_head_dim", default=size),
        value_size=text.number("v_head_dim", default=size),
        kinds=tuple(kinds), latent=latent, known=known and _PLAIN.fullmatch(model) is not None and (
            not text.number("num_kv_shared_layers", default=0)),
        window=text.number("attention_chunk_size" if ("chunked", False) in kinds else "sliding_window", default=0),
        state=_state(text) if any(state for _, state in kinds) else None,
        experts=text.number("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", default=0),
        intermediate=text.number("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=4 * hidden),
        tied=text.flag("tie_word_embeddings", default=_tied_by_default(text)),
        quantization=_name(quantized.get("quant_method")) if isinstance(quantized, Mapping) else None,
        bits=_packed_bits(quantized) if isinstance(quantized, Mapping) else 0,
        element_bytes=2 if dtype == "" else _TYPES.get(dtype, 2))


def _name(value: object) -> str:
    """Return the name of a class or a method; "unknown" for what is none."""
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= MOST_SHOWN else "unknown"


def _packed_bits(quantized: Mapping[str, Any]) -> int:
    """Return how many bits a weight has that is stored in wider integers."""
    bits = next((value for key in ("bits", "w_bit", "num_bits") if isinstance(value := quantized.get(key), int)), 4)
    return bits if 1 <= bits <= 8 else 4


def _tied_by_default(text: _Config) -> bool:
    """Return what transformers takes if a file of this type says nothing."""
    return _TIED.match(str(text.values.get("model_type", ""))) is not None


def _kinds(text: _Config, layers: int) -> tuple[list[LayerKind], bool]:
    """Return the kind of each layer, and whether all are known."""
    model = str(text.values.get("model_type", ""))
    every = range(layers)
    named = text.texts("layer_types") or text.texts("layers_block_type") or []
    pattern = text.values.get("hybrid_override_pattern")
    period, offset = text.number("attn_layer_period", default=0), text.number("attn_layer_offset", default=0)
    interval = text.number("full_attention_interval", default=0)
    known = True
    if len(named) == layers:
        kinds = [(_KINDS.get(name), name in _STATES) for name in named]
        known = all(name in _KINDS or name in _STATES or name in ("mlp", "moe") for name in named)
    elif isinstance(pattern, str) and len(pattern) == layers:  # Nemotron-H: M a state, * attention, - and E neither
        kinds = [(_FULL[0] if letter == "*" else None, letter == "M") for letter in pattern]
    elif model == "falcon_h1":  # both, side by side, in each layer
        kinds = [("full", True)] * layers
    elif period or interval:
        kinds = [_FULL if (index % period == offset if period else (index + 1) % interval == 0) else _STATE
                 for index in every]
    elif model in ("mamba", "mamba2", "falcon_mamba"):
        kinds = [_STATE] * layers
    elif text.values.get("attention_chunk_size") and model.startswith("llama4"):
        roped = text.values.get("no_rope_layers")
        step = text.number("no_rope_layer_interval", default=4) or 4
        chunked = (roped if isinstance(roped, list) and len(roped) == layers else
                   [(index + 1) % step != 0 for index in every])
        kinds = [("chunked" if chunk else "full", False) for chunk in chunked]
    elif text.values.get("sliding_window"):
        slides, known = _sliding(text, model, every)
        kinds = [("sliding" if slide else "full", False) for slide in slides]
    else:
        kinds = [_FULL] * layers
    return kinds, known


def _sliding(text: _Config, model: str, every: Sequence[int]) -> tuple[list[bool], bool]:
    """Return which layers see only a window, by the rules of the model's type, and whether that type is known."""
    if model in ("gemma2", "gpt_oss"):
        return [index % 2 == 0 for index in every], True
    if model.startswith(("gemma3", "cohere2")):
        step = text.number("sliding_window_pattern", "_sliding_window_pattern",
                           default=6 if model.startswith("gemma3") else 4)
        return [bool((index + 1) % step) if step else False for index in every], True
    if model.startswith(("qwen2", "qwen3")):
        first = text.number("max_window_layers", default=len(every))
        return [text.flag("use_sliding_window") and index >= first for index in every], True
    if model in ("mistral", "mixtral", "phi3", "starcoder2", "phimoe"):
        return [True for _ in every], True
    return [False for _ in every], False


def _state(text: _Config) -> State | None:
    """Return what a layer with a state keeps for a sequence, by vLLM's `MambaStateShapeCalculator`."""
    dtype = text.values.get("mamba_ssm_cache_dtype") or text.values.get("mamba_ssm_dtype")
    wide = _TYPES.get(dtype) if isinstance(dtype, str) else None
    if key_heads := text.number("linear_num_key_heads", default=0):  # gated delta net
        keys = key_heads * text.number("linear_key_head_dim")
        value_heads, value_size = text.number("linear_num_value_heads"), text.number("linear_value_head_dim")
        return State(convolution=(2 * keys + value_heads * value_size) * (text.number("linear_conv_kernel_dim") - 1),
                     recurrent=value_heads * value_size * text.number("linear_key_head_dim"),
                     recurrentBytes=wide)
    steps = text.number("conv_kernel", "mamba_d_conv", "d_conv", default=4) - 1
    size = text.number("ssm_state_size", "mamba_d_state", "state_size", "d_state", default=0)
    if heads := text.number("mamba_num_heads", "mamba_n_heads", "num_heads", default=0):  # Mamba 2
        inner = heads * text.number("mamba_head_dim", "mamba_d_head", "head_dim")
        groups = text.number("n_groups", "mamba_n_groups", default=1)
        return State(convolution=(inner + 2 * groups * size) * steps, recurrent=inner * size,
                     recurrentBytes=wide)
    if size:  # Mamba 1
        inner = text.number("intermediate_size") if text.values.get("model_type") in ("mamba", "falcon_mamba") else (
            text.number("hidden_size", "d_model") * text.number("mamba_expand", "expand", default=2))
        return State(convolution=inner * steps, recurrent=inner * size, recurrentBytes=wide)
    return None


def from_gguf(metadata: Mapping[str, Any], *, tied: bool) -> Architecture:
    """Return the architecture in the metadata of a GGUF file; `tied` = it stores no head. Raises ConfigError."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise ConfigError("it has no general.architecture")
    prefix = f"{name}."
    own = _Config({key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)})
    layers = own.number("block_count")
    if not 0 < layers <= MOST_LAYERS:
        raise ConfigError(f"it has {layers} layers")
    layers -= min(layers - 1, own.number("nextn_predict_layers", default=0))
    heads_of = _each(own, "attention.head_count", layers)
    kv_of = _each(own, "attention.head_count_kv", layers, heads_of)
    heads, kv_heads = max(heads_of, default=0), max(kv_of, default=0)
    if interval := own.number("full_attention_interval", default=4 if name == "qwen3next" else 0):
        kv_of = [0 if (index + 1) % interval else heads for index, heads in enumerate(kv_of)]
    hidden = own.number("embedding_length")
    size = hidden // heads if heads else 0
    keys, values = own.number("attention.key_length", default=size), own.number("attention.value_length", default=size)
    latent = None
    if rank := own.number("attention.kv_lora_rank", default=0):
        latent = Latent(rank=rank, rope=own.number("rope.dimension_count", default=0))
    window = own.number("attention.sliding_window", default=0)
    slides, known = _sliding(own, {"gpt-oss": "gpt_oss"}.get(name, name), range(layers)) if window else ([], True)
    states, state = _gguf_states(own, name, layers, kv_of)
    kinds: list[LayerKind] = [
        (None if not kv_of[index] else "sliding" if window and slides[index] else "full", states[index])
        for index in range(layers)]
    return Architecture(
        name=_name(name), hidden=hidden, vocabulary=own.number("vocab_size", default=0), heads=heads, kv_heads=kv_heads,
        positions=own.number("context_length", default=0), key_size=keys, value_size=values,
        kinds=tuple(kinds), window=window, latent=latent, state=state,
        experts=own.number("expert_count", default=0),
        intermediate=max(_each(own, "feed_forward_length", layers), default=0), tied=tied, quantization="gguf",
        known=known and _PLAIN_FILES.fullmatch(name) is not None and (state is not None or not any(states)))


def _each(own: _Config, name: str, layers: int, default: Sequence[int] = ()) -> list[int]:
    """Return a number for each layer: files have one for all, or a list."""
    value = own.values.get(name)
    if isinstance(value, list):
        if len(value) < layers or not all(type(item) is int and 0 <= item < _MOST for item in value):
            raise ConfigError(f"{name} does not have a number for each layer")
        return value[:layers]
    return [own.number(name)] * layers if value is not None else list(default) or [0] * layers


def _gguf_states(own: _Config, name: str, layers: int, kv_of: Sequence[int]) -> tuple[tuple[bool, ...], State | None]:
    """Return which layers have a state, and what it is, by `n_embd_r` and `n_embd_s` of llama.cpp's `llama-hparams`."""
    inner = own.number("ssm.inner_size", default=0)
    if not inner:
        return (False,) * layers, None
    groups, size = own.number("ssm.group_count", default=0), own.number("ssm.state_size", default=0)
    steps = max(0, own.number("ssm.conv_kernel", default=1) - 1)
    everywhere = name == "falcon-h1" or not any(kv_of)
    return (tuple(everywhere or not kv for kv in kv_of),
            State(convolution=(inner + 2 * groups * size) * steps, recurrent=inner * size, recurrentBytes=4))
