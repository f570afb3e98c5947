"""Which tensors an engine loads, how it divides them, and whose cache is known, where a mistake would be a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.model import Description
from fleetctl.sizing.architecture import Architecture, from_config, from_gguf
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import EngineLine
from fleetctl.sizing.headers import Tensor
from fleetctl.sizing.parts import model_of

CONFIG = {"architectures": ["XForCausalLM"], "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 16, "torch_dtype": "bfloat16"}


def describe(sizes: dict[str, int], **config: Any) -> Description:
    """Return the description of tensors of these sizes."""
    return model_of("x", [Tensor(name, "BF16", (size // 2,), size) for name, size in sizes.items()],
                    from_config({**CONFIG, **config}))


def bound(model: Description, **line: Any) -> int:
    """Return what vLLM certainly loads onto each card."""
    return card_need(model, EngineLine("vllm", **line), cards=1, memory=None).bound


def test_layers_of_another_model_beside_the_one_that_writes_text_are_not_certain() -> None:
    model = describe({
        "thinker.model.layers.0.mlp.up_proj.weight": 60, "thinker.model.layers.1.mlp.up_proj.weight": 60,
        "talker.model.layers.0.mlp.up_proj.weight": 40, "talker.model.embed_tokens.weight": 40,
        "code_predictor.model.layers.1.mlp.up_proj.weight": 20, "other.encoder.layers.7.fc.weight": 20,
        "token2wav.dit.blocks.0.attn.weight": 30, "thinker.model.embed_tokens.weight": 10})
    assert (model.vision, model.embedding, bound(model)) == (150, 10, 130)


def test_zeros_and_orders_of_columns_of_gptq_are_dropped_and_those_of_awq_are_kept() -> None:
    sizes = {"model.layers.0.mlp.up_proj.qweight": 100, "model.layers.0.mlp.up_proj.qzeros": 10,
             "model.layers.0.mlp.up_proj.g_idx": 4, "model.layers.1.mlp.up_proj.scales": 6}
    assert [bound(describe(sizes, quantization_config={"quant_method": method})) for method in ("gptq", "awq")] == [
        106, 120]


@pytest.mark.parametrize(("config", "is_dropped"), [
    ({"model_type": "starcoder2"}, True), ({"model_type": "smollm3"}, True), ({"model_type": "gemma3_text"}, True),
    ({"model_type": "llama", "tie_word_embeddings": True}, True), ({"model_type": "llama"}, False),
    ({"model_type": "falcon_h1"}, False), ({"model_type": "starcoder2", "tie_word_embeddings": False}, False)])
def test_a_stored_head_is_dropped_where_the_embedding_is_the_head(config: dict[str, Any], is_dropped: bool) -> None:
    model = describe({"model.embed_tokens.weight": 32, "lm_head.weight": 32}, **config)
    assert (model.unused, model.head) == ((32, 0) if is_dropped else (0, 32))


@pytest.mark.parametrize("config", [
    {"model_type": "gemma3n_text"}, {"model_type": "dbrx"}, {"model_type": "hunyuan_v1"}, {"model_type": "chatglm"},
    {"model_type": "deepseek_v32"}, {"model_type": "gemma3_text", "num_kv_shared_layers": 1}, {"model_type": "new"},
    {"model_type": "llama", "sliding_window": 128}, {"model_type": "llama", "layer_types": ["full_attention", "new"]}])
def test_the_context_of_a_type_that_is_not_known_is_not_certain(config: dict[str, Any]) -> None:
    model = describe({"model.layers.0.mlp.up_proj.weight": 60}, **config)
    assert not model.attention_known
    assert card_need(model, EngineLine("vllm", context=4096), cards=1, memory=None).bound_context == 0


def test_layers_of_a_gguf_file_without_a_cache_are_found_by_their_interval() -> None:
    numbers = {"block_count": 8, "embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
               "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.conv_kernel": 4}

    def read(name: str) -> Architecture:
        return from_gguf({"general.architecture": name, **{f"{name}.{key}": number for key, number in numbers.items()}},
                         tied=False)

    assert read("qwen3next").kinds == (((None, True),) * 3 + (("full", False),)) * 2
    assert read("qwen3next").known
    assert not read("llama4").known
