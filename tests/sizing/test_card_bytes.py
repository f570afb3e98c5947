"""Bytes per card: what is certain stays below what is estimated, and more ranks need no more each."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.documents.model import Model
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import EngineLine
from fleetctl.sizing.kv_cache import pool
from tests.sizing.test_public_models import FACTS, GIB, described

MODELS = {name: described(name) for name in FACTS}
LINES = st.builds(
    EngineLine, engine=st.sampled_from(["vllm", "sglang", "llama.cpp", None]), tensor=st.sampled_from([1, 2, 4, 8, 16]),
    pipeline=st.sampled_from([1, 2, 3, 5]), data=st.sampled_from([1, 2, 4]), experts=st.sampled_from([1, 2, 8]),
    expert_parallel=st.booleans(), context=st.sampled_from([None, -1, 1, 4096, 131_072]),
    share=st.sampled_from([None, 0.3, 0.9]), cache_element=st.sampled_from([0.0, 1.0, 2.0]),
    sequences=st.sampled_from([None, 1, 256]), eager=st.booleans(), hybrid_cache=st.booleans(),
    layers_on_cards=st.sampled_from([None, -1, 0, 7, 99]))


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), line=LINES, cards=st.integers(1, 16),
       memory=st.sampled_from([None, 24 * GIB, 80 * GIB]))
def test_the_bound_is_never_above_the_estimate(name: str, line: EngineLine, cards: int, memory: int | None) -> None:
    need = card_need(MODELS[name], line, cards=cards, memory=memory)
    assert 0 <= need.bound_weights <= need.weights
    assert 0 <= need.bound <= need.least or line.context == -1
    assert need.bound_weights <= MODELS[name].loaded


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), engine=st.sampled_from(["vllm", "sglang"]),
       tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.sampled_from([1, 2, 4]))
def test_more_ranks_never_need_more_weights_each(name: str, engine: str, tensor: int, pipeline: int) -> None:
    def weights(line: EngineLine) -> int:
        return card_need(MODELS[name], line, cards=line.ranks, memory=None).bound_weights

    one = EngineLine(engine, tensor=tensor, pipeline=pipeline)  # type: ignore[arg-type]
    assert weights(EngineLine(one.engine, tensor=2 * tensor, pipeline=pipeline)) <= weights(one)
    assert weights(EngineLine(one.engine, tensor=tensor, pipeline=2 * pipeline)) <= weights(one)


def test_405b_does_not_fit_on_one_card_and_fits_on_sixteen() -> None:
    model = MODELS["llama-3.1-405b"]
    alone = card_need(model, EngineLine("vllm"), cards=1, memory=80 * GIB)
    assert alone.bound == model.loaded - model.outside > 700 * GIB
    assert alone.is_certain
    assert alone.length == 0
    sixteen = card_need(model, EngineLine("vllm", tensor=16, context=8192), cards=16, memory=80 * GIB)
    assert sixteen.least < 80 * GIB
    assert (sixteen.length or 0) >= 8192


def test_a_hybrid_model_s_cache_depends_on_the_flag_that_makes_all_layers_full() -> None:
    model = MODELS["gemma-3-27b"]
    hybrid, full = (
        card_need(model, EngineLine("vllm", context=131_072, hybrid_cache=on), cards=1, memory=80 * GIB).context / GIB
        for on in (True, False))
    assert (round(hybrid), round(full)) == (18, 62)


def test_heads_of_keys_and_values_are_held_by_several_ranks_when_there_are_fewer() -> None:
    model = MODELS["qwen3-30b-a3b"]
    four, eight = (card_need(model, EngineLine("vllm", tensor=ranks, context=4096), cards=ranks, memory=80 * GIB)
                   for ranks in (4, 8))
    assert four.bound_context == eight.bound_context


def test_llama_cpp_is_only_certain_once_its_layers_are_told() -> None:
    model = MODELS["llama-3.1-8b"]
    free, told = (
        card_need(model, EngineLine("llama.cpp", layers_on_cards=count, context=4096), cards=1, memory=24 * GIB)
        for count in (None, 99))
    assert free.bound_weights == 0
    assert told.bound_weights == model.loaded - model.embedding - model.outside


def test_quantization_on_loading_makes_nothing_certain() -> None:
    stored, loaded = EngineLine("vllm", quantization="fp8"), MODELS["llama-3.1-8b"]
    assert not card_need(loaded, stored, cards=1, memory=None).is_certain
    assert card_need(MODELS["deepseek-v3"], stored, cards=1, memory=None).is_certain


def tiny(**fields: object) -> Model:
    """Return the description of a model without weights."""
    return Model.model_validate({
        "apiVersion": "fleetctl/v1", "kind": "Model", "source": "x", "architecture": "x", "parameters": 0, "bytes": 0,
        "types": {}, "positions": 4096, "hidden": 256, "vocabulary": 1000, **fields})


def test_vllm_s_number_of_cache_blocks_is_predicted() -> None:
    """The numbers were logged by vLLM 0.32 on CPUs, where a block has 128 tokens, for 256 MiB of cache."""
    heads = {"heads": 4, "kvHeads": 2, "keySize": 64, "valueSize": 64, "window": 128}
    sliding, full = {"count": 12, "attention": "sliding"}, {"count": 2, "attention": "full"}
    cases: list[tuple[Model, int, int]] = [
        (tiny(**heads, layers=[{"count": 6, "attention": "full"}]), 128, 682),
        (tiny(**heads, layers=[{"count": 4, "attention": "sliding"}]), 128, 1024),
        (tiny(**heads, layers=[sliding, full]), 128, 2048),
        (tiny(**heads, latent={"rank": 512, "rope": 64}, layers=[{"count": 4, "attention": "full"}]), 16, 3640)]
    for model, block, blocks in cases:
        assert (256 << 20) // pool(model, EngineLine("vllm"), model.layers, block=block).block_bytes == blocks
