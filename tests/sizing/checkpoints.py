"""The tensors of public models' checkpoints: the names and shapes that transformers gives them, without bytes."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import Any

from fleetctl.sizing.headers import GGUF_TYPES, SAFETENSORS_BITS, Tensor

Shape = tuple[int, ...]
NARROW = {"float16": "F16", "bfloat16": "BF16"}


def tensors_of(fact: dict[str, Any]) -> list[Tensor]:
    """Return the stored tensors of a model of models.yaml."""
    if "gguf" in fact:
        return list(_gguf(fact["gguf"]))
    config = {**fact["config"], **fact["config"].get("text_config", {})}
    method = config.get("quantization_config", {})
    narrow = NARROW.get(config.get("torch_dtype", ""), "F32" if config["model_type"] == "gpt2" else "BF16")
    found = [stored for name, shape in _named(fact, config) for stored in _stored(name, shape, narrow, method, fact)]
    if fact.get("vision"):
        found.append(_tensor("vision_tower.vision_model.encoder.weight", (fact["vision"],), narrow))
    return found


def _tensor(name: str, shape: Shape, kind: str) -> Tensor:
    return Tensor(name, kind, shape, -(-prod(shape) * SAFETENSORS_BITS[kind] // 8))


def _stored(name: str, shape: Shape, narrow: str, method: dict[str, Any], fact: dict[str, Any]) -> Iterator[Tensor]:
    """Yield a tensor as a checkpoint of this quantization stores it."""
    how = method.get("quant_method")
    linear = len(shape) >= 2 and ".layers." in name and not any(part in name for part in (
        "norm", ".gate.", ".router.", "eh_proj", "embed_tokens", "shared_head", "conv"))
    base = name.removesuffix(".weight")
    if how == "fp8" and linear:
        yield _tensor(name, shape, "F8_E4M3")
        yield _tensor(f"{base}.weight_scale_inv", tuple(ceil(size / 128) for size in shape), fact["scaleType"])
    elif how == "awq" and linear:
        rows, columns = shape
        group = method["group_size"]
        yield _tensor(f"{base}.qweight", (columns, rows // 8), "I32")
        yield _tensor(f"{base}.qzeros", (columns // group, rows // 8), "I32")
        yield _tensor(f"{base}.scales", (columns // group, rows), "F16")
    elif how == "mxfp4" and name.endswith("_proj") and "experts" in name:
        experts, rows, columns = shape
        yield _tensor(f"{name}_blocks", (experts, rows, columns // 32, 16), "U8")
        yield _tensor(f"{name}_scales", (experts, rows, columns // 32), "U8")
    else:
        yield _tensor(name, shape, narrow)


def _named(fact: dict[str, Any], config: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    model = config["model_type"]
    if model == "gpt2":
        yield from _gpt2(config)
        return
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    top = {"gemma3_text": "language_model.model", "llama4_text": "language_model.model",
           "nemotron_h": "backbone"}.get(model, "model")
    names = {"nemotron_h": "embeddings", "jamba": "embed_tokens"}
    yield f"{top}.{names.get(model, 'embed_tokens')}.weight", (vocab, hidden)
    tied = config.get("tie_word_embeddings", model.startswith("gemma"))
    if not tied or fact.get("storedHead"):
        yield f"{top.removesuffix('.model') + '.' if '.' in top else ''}lm_head.weight", (vocab, hidden)
    last = {"nemotron_h": "norm_f", "jamba": "final_layernorm", "falcon_h1": "final_layernorm"}.get(model, "norm")
    yield f"{top}.{last}.weight", (hidden,)
    for layer in range(config["num_hidden_layers"]):
        for name, shape in _layer(fact, config, model, layer):
            yield f"{top}.layers.{layer}.{name}", shape
    for extra in range(config.get("num_nextn_predict_layers", 0)):
        layer = config["num_hidden_layers"] + extra
        for name, shape in (*_layer(fact, config, model, layer), ("embed_tokens.weight", (vocab, hidden)),
                            ("shared_head.head.weight", (vocab, hidden)), ("shared_head.norm.weight", (hidden,)),
                            ("enorm.weight", (hidden,)), ("hnorm.weight", (hidden,)),
                            ("eh_proj.weight", (hidden, 2 * hidden))):
            yield f"model.layers.{layer}.{name}", shape
    if fact.get("mtp"):
        yield from (("mtp.fc.weight", (hidden, 2 * hidden)), ("mtp.norm.weight", (hidden,)),
                    ("mtp.pre_fc_norm_embedding.weight", (hidden,)), ("mtp.pre_fc_norm_hidden.weight", (hidden,)))
        for name, shape in _layer(fact, config, model, 3):
            yield f"mtp.layers.0.{name}", shape


def _layer(fact: dict[str, Any], config: dict[str, Any], model: str, layer: int) -> Iterator[tuple[str, Shape]]:
    hidden = config["hidden_size"]
    if model == "nemotron_h":
        yield "norm.weight", (hidden,)
        kind = config["hybrid_override_pattern"][layer]
        parts = {"M": _mamba2(config, "mixer"), "*": _attention(config, model, "mixer"), "E": _experts(config, model)}
        yield from parts[kind]
        return
    yield "input_layernorm.weight", (hidden,)
    yield "pre_ff_layernorm.weight" if model in ("jamba", "falcon_h1") else "post_attention_layernorm.weight", (hidden,)
    if model.startswith("gemma"):
        yield from (("pre_feedforward_layernorm.weight", (hidden,)), ("post_feedforward_layernorm.weight", (hidden,)))
    if fact.get("rotaryTables"):
        yield "self_attn.rotary_emb.inv_freq", (hidden // config["num_attention_heads"] // 2,)
    if model == "jamba" and layer % config["attn_layer_period"] != config["attn_layer_offset"]:
        yield from _mamba1(config)
    elif model == "qwen3_next" and (layer + 1) % config["full_attention_interval"]:
        yield from _delta_net(config)
    else:
        yield from _attention(config, model, "self_attn")
    if model == "falcon_h1":
        yield from _mamba2(config, "mamba")
    has_experts = (config.get("n_routed_experts") and layer >= config["first_k_dense_replace"]) or (
        "n_routed_experts" not in config and (config.get("num_experts") or config.get("num_local_experts")))
    if model == "jamba":
        has_experts = layer % config["expert_layer_period"] == config["expert_layer_offset"]
    if has_experts:
        yield from _experts(config, model)
    else:
        name = "feed_forward" if model in ("jamba", "falcon_h1") else "mlp"
        yield from _gated(name, hidden, config["intermediate_size"])


def _gated(name: str, hidden: int, inner: int) -> Iterator[tuple[str, Shape]]:
    yield from ((f"{name}.gate_proj.weight", (inner, hidden)), (f"{name}.up_proj.weight", (inner, hidden)),
                (f"{name}.down_proj.weight", (hidden, inner)))


def _attention(config: dict[str, Any], model: str, name: str) -> Iterator[tuple[str, Shape]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if rank := config.get("kv_lora_rank"):
        nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
        if queries := config["q_lora_rank"]:
            yield from ((f"{name}.q_a_proj.weight", (queries, hidden)), (f"{name}.q_a_layernorm.weight", (queries,)),
                        (f"{name}.q_b_proj.weight", (heads * (nope + rope), queries)))
        else:
            yield f"{name}.q_proj.weight", (heads * (nope + rope), hidden)
        yield from ((f"{name}.kv_a_proj_with_mqa.weight", (rank + rope, hidden)),
                    (f"{name}.kv_a_layernorm.weight", (rank,)),
                    (f"{name}.kv_b_proj.weight", (heads * (nope + value), rank)),
                    (f"{name}.o_proj.weight", (hidden, heads * value)))
        return
    size = config.get("head_dim", hidden // heads)
    kv = config["num_key_value_heads"] * size
    gate = 2 if model == "qwen3_next" else 1
    yield from ((f"{name}.q_proj.weight", (heads * size * gate, hidden)), (f"{name}.k_proj.weight", (kv, hidden)),
                (f"{name}.v_proj.weight", (kv, hidden)), (f"{name}.o_proj.weight", (hidden, heads * size)))
    if model in ("qwen2", "gpt_oss") or config.get("attention_bias"):
        yield from ((f"{name}.q_proj.bias", (heads * size,)), (f"{name}.k_proj.bias", (kv,)),
                    (f"{name}.v_proj.bias", (kv,)))
    if model == "gpt_oss":
        yield from ((f"{name}.o_proj.bias", (hidden,)), (f"{name}.sinks", (heads,)))
    if model.startswith(("qwen3", "gemma3")):
        yield from ((f"{name}.q_norm.weight", (size,)), (f"{name}.k_norm.weight", (size,)))


def _experts(config: dict[str, Any], model: str) -> Iterator[tuple[str, Shape]]:  # noqa: C901  one branch for each kind
    hidden = config["hidden_size"]
    count = config.get("n_routed_experts") or config.get("num_experts") or config["num_local_experts"]
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    if model == "gpt_oss":
        yield from (("mlp.router.weight", (count, hidden)), ("mlp.router.bias", (count,)),
                    ("mlp.experts.gate_up_proj", (count, 2 * inner, hidden)),
                    ("mlp.experts.gate_up_proj_bias", (count, 2 * inner)),
                    ("mlp.experts.down_proj", (count, hidden, inner)), ("mlp.experts.down_proj_bias", (count, hidden)))
    elif model == "llama4_text":
        yield from (("feed_forward.router.weight", (count, hidden)),
                    ("feed_forward.experts.gate_up_proj", (count, hidden, 2 * inner)),
                    ("feed_forward.experts.down_proj", (count, inner, hidden)))
        yield from _gated("feed_forward.shared_expert", hidden, inner)
    elif model == "mixtral":
        yield "block_sparse_moe.gate.weight", (count, hidden)
        for number in range(count):
            yield from ((f"block_sparse_moe.experts.{number}.w{matrix}.weight",
                         (hidden, inner) if matrix == 2 else (inner, hidden)) for matrix in (1, 2, 3))
    elif model == "nemotron_h":
        yield from (("mixer.gate.weight", (count, hidden)), ("mixer.gate.e_score_correction_bias", (count,)))
        shared = config["moe_shared_expert_intermediate_size"]
        for name, size in (*((f"experts.{number}", inner) for number in range(count)), ("shared_experts", shared)):
            yield from ((f"mixer.{name}.up_proj.weight", (size, hidden)),
                        (f"mixer.{name}.down_proj.weight", (hidden, size)))
    elif model == "jamba":
        yield "feed_forward.router.weight", (count, hidden)
        for number in range(count):
            yield from _gated(f"feed_forward.experts.{number}", hidden, inner)
    else:
        yield "mlp.gate.weight", (count, hidden)
        if config.get("topk_method") == "noaux_tc":
            yield "mlp.gate.e_score_correction_bias", (count,)
        for number in range(count):
            yield from _gated(f"mlp.experts.{number}", hidden, inner)
        if shared := config.get("n_shared_experts"):
            yield from _gated("mlp.shared_experts", hidden, inner * shared)
        if shared := config.get("shared_expert_intermediate_size"):
            yield from _gated("mlp.shared_expert", hidden, shared)
            yield "mlp.shared_expert_gate.weight", (1, hidden)


def _mamba1(config: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, state, rank = config["hidden_size"], config["mamba_d_state"], config["mamba_dt_rank"]
    inner = hidden * config["mamba_expand"]
    yield from (("mamba.in_proj.weight", (2 * inner, hidden)), ("mamba.x_proj.weight", (rank + 2 * state, inner)),
                ("mamba.dt_proj.weight", (inner, rank)), ("mamba.dt_proj.bias", (inner,)),
                ("mamba.out_proj.weight", (hidden, inner)),
                ("mamba.conv1d.weight", (inner, 1, config["mamba_d_conv"])), ("mamba.conv1d.bias", (inner,)),
                ("mamba.A_log", (inner, state)), ("mamba.D", (inner,)), ("mamba.dt_layernorm.weight", (rank,)),
                ("mamba.b_layernorm.weight", (state,)), ("mamba.c_layernorm.weight", (state,)))


def _mamba2(config: dict[str, Any], name: str) -> Iterator[tuple[str, Shape]]:
    hidden = config["hidden_size"]
    heads = config.get("mamba_num_heads") or config["mamba_n_heads"]
    inner = heads * (config.get("mamba_head_dim") or config["mamba_d_head"])
    groups = config.get("n_groups") or config["mamba_n_groups"]
    state = config.get("ssm_state_size") or config["mamba_d_state"]
    kernel = config.get("conv_kernel") or config["mamba_d_conv"]
    conv = inner + 2 * groups * state
    yield from ((f"{name}.in_proj.weight", (inner + conv + heads, hidden)),
                (f"{name}.conv1d.weight", (conv, 1, kernel)),
                (f"{name}.conv1d.bias", (conv,)), (f"{name}.A_log", (heads,)), (f"{name}.D", (heads,)),
                (f"{name}.dt_bias", (heads,)), (f"{name}.out_proj.weight", (hidden, inner)))
    if name == "mixer":
        yield f"{name}.norm.weight", (inner,)


def _delta_net(config: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden = config["hidden_size"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    heads, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    yield from (("linear_attn.in_proj_qkvz.weight", (2 * keys + 2 * heads * size, hidden)),
                ("linear_attn.in_proj_ba.weight", (2 * heads, hidden)),
                ("linear_attn.conv1d.weight", (2 * keys + heads * size, 1, config["linear_conv_kernel_dim"])),
                ("linear_attn.dt_bias", (heads,)), ("linear_attn.A_log", (heads,)),
                ("linear_attn.norm.weight", (size,)),
                ("linear_attn.out_proj.weight", (hidden, heads * size)))


def _gpt2(config: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, positions = config["n_embd"], config["n_positions"]
    yield from (("wte.weight", (config["vocab_size"], hidden)), ("wpe.weight", (positions, hidden)),
                ("ln_f.weight", (hidden,)), ("ln_f.bias", (hidden,)))
    for layer in range(config["n_layer"]):
        at = f"h.{layer}"
        yield f"{at}.attn.bias", (1, 1, positions, positions)
        for name, inside, outside in (("attn.c_attn", hidden, 3 * hidden), ("attn.c_proj", hidden, hidden),
                                      ("mlp.c_fc", hidden, 4 * hidden), ("mlp.c_proj", 4 * hidden, hidden)):
            yield from ((f"{at}.{name}.weight", (inside, outside)), (f"{at}.{name}.bias", (outside,)))
        for name in ("ln_1", "ln_2"):
            yield from ((f"{at}.{name}.weight", (hidden,)), (f"{at}.{name}.bias", (hidden,)))


def _gguf(metadata: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors of a file in Q4_K_M: some layers' values and down projections, and the head, have Q6_K
    (`llama_tensor_get_type` of llama.cpp).
    """
    kind = metadata["general.architecture"]
    own = {name.removeprefix(f"{kind}."): value for name, value in metadata.items()}
    hidden, vocab, layers = own["embedding_length"], own["vocab_size"], own["block_count"]
    heads, kv_heads, experts = own["attention.head_count"], own["attention.head_count_kv"], own.get("expert_count", 0)
    size = own.get("attention.key_length", hidden // heads)
    yield _packed("token_embd.weight", (vocab, hidden), "Q4_K")
    yield _packed("output.weight", (vocab, hidden), "Q6_K")
    yield _packed("output_norm.weight", (hidden,), "F32")
    if kind == "llama":
        yield _packed("rope_freqs.weight", (size // 2,), "F32")
    for layer in range(layers):
        wide = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        more = "Q6_K" if wide else "Q4_K"
        shapes: list[tuple[str, Shape, str]] = [
            ("attn_norm", (hidden,), "F32"), ("ffn_norm", (hidden,), "F32"), ("attn_q", (heads * size, hidden), "Q4_K"),
            ("attn_k", (kv_heads * size, hidden), "Q4_K"), ("attn_v", (kv_heads * size, hidden), more),
            ("attn_output", (hidden, heads * size), "Q4_K")]
        if kind == "qwen3moe":
            shapes += [("attn_q_norm", (size,), "F32"), ("attn_k_norm", (size,), "F32")]
        if experts:
            inner = own["expert_feed_forward_length"]
            shapes += [("ffn_gate_inp", (experts, hidden), "F32"), ("ffn_gate_exps", (experts, inner, hidden), "Q4_K"),
                       ("ffn_up_exps", (experts, inner, hidden), "Q4_K"),
                       ("ffn_down_exps", (experts, hidden, inner), more)]
        else:
            inner = own["feed_forward_length"]
            shapes += [("ffn_gate", (inner, hidden), "Q4_K"), ("ffn_up", (inner, hidden), "Q4_K"),
                       ("ffn_down", (hidden, inner), more)]
        yield from (_packed(f"blk.{layer}.{name}.weight", shape, packed) for name, shape, packed in shapes)


def _packed(name: str, shape: Shape, kind: str) -> Tensor:
    elements, size = next(row[1:] for row in GGUF_TYPES.values() if row[0] == kind)
    return Tensor(name, kind, shape, prod(shape) // elements * size)
