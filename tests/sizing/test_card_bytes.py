"""Bytes per card: what is certain stays below what is estimated, and more ranks need no more each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.documents.model import Description
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import ENGINES, MOST_NUMBER, Engine, EngineLine
from fleetctl.sizing.fit import least_card
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


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), line=LINES, cards=st.integers(1, 16),
       memory=st.sampled_from([None, 24 * GIB, 80 * GIB]))
def test_the_bound_is_never_above_the_estimate(name: str, line: EngineLine, cards: int, memory: int | None) -> None:
    need = card_need(MODELS[name], line, cards=cards, memory=memory)
    assert 0 <= need.bound_weights <= need.weights
    assert 0 <= need.bound <= need.least or line.context == -1
    assert need.bound_weights <= MODELS[name].loaded


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), engine=st.sampled_from(["vllm", "sglang"]),
       tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.sampled_from([1, 2, 4]))
def test_more_ranks_never_need_more_weights_each(name: str, engine: str, tensor: int, pipeline: int) -> None:
    def weights(line: EngineLine) -> int:
        return card_need(MODELS[name], line, cards=line.ranks, memory=None).bound_weights

    one = EngineLine(engine, tensor=tensor, pipeline=pipeline)  # type: ignore[arg-type]
    assert weights(EngineLine(one.engine, tensor=2 * tensor, pipeline=pipeline)) <= weights(one)
    assert weights(EngineLine(one.engine, tensor=tensor, pipeline=2 * pipeline)) <= weights(one)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), line=LINES, cards=st.integers(1, 16), more=st.sampled_from(
    ["tensor", "pipeline", "data", "cards"]))
def test_more_ranks_need_no_more_context_each(name: str, line: EngineLine, cards: int, more: str) -> None:
    one = replace(line, attention_data=False, context=4096)
    several = one if more == "cards" else replace(one, **{more: 2 * getattr(one, more)})
    few = card_need(MODELS[name], one, cards=cards, memory=None)
    many = card_need(MODELS[name], several, cards=2 * cards, memory=None)
    assert many.bound <= few.bound


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), engine=st.sampled_from(["vllm", "sglang"]),
       tensor=st.sampled_from([1, 2, 4, 8, 16, 64]), data=st.sampled_from([1, 2, 8]), by_experts=st.booleans())
def test_the_bound_is_at_most_an_equal_part_and_what_each_rank_holds(name: str, engine: Engine, tensor: int, data: int,
                                                                     by_experts: bool) -> None:
    model = MODELS[name]
    line = EngineLine(engine, tensor=tensor, data=data, expert_parallel=by_experts, experts=tensor if by_experts else 1)
    held = sum(run.count * (run.bytes.whole + run.bytes.key_value) for run in model.layers)
    one_more = sum(run.count * run.bytes.experts for run in model.layers) / max(1, model.experts)
    bound = card_need(model, line, cards=line.ranks, memory=None).bound_weights
    assert bound <= model.loaded / tensor + held + one_more * by_experts


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(MODELS)), line=LINES, cards=st.integers(1, 16),
       memory=st.sampled_from([24 * GIB, 80 * GIB, 141 * GIB]))
def test_the_length_that_is_said_to_fit_fits_and_no_longer_one(name: str, line: EngineLine, cards: int, memory: int
                                                               ) -> None:
    need = card_need(MODELS[name], line, cards=cards, memory=memory)
    if need.limit is None or need.length is None:
        return

    def takes(length: int) -> int:
        told = card_need(MODELS[name], replace(line, context=length), cards=cards, memory=memory)
        return told.weights + told.working + told.context

    wanted = line.context if line.context and line.context > 0 else MODELS[name].positions
    assert not need.length or takes(need.length) <= need.limit
    assert need.length == wanted or takes(need.length + 1) > need.limit


def test_vllm_s_share_is_of_the_whole_card_and_sglang_s_of_what_is_free_at_its_start() -> None:
    model, memory = MODELS["llama-3.1-8b"], 80 * GIB
    vllm, sglang = (card_need(model, EngineLine(engine, share=0.5), cards=1, memory=memory) for engine in ENGINES[:2])
    assert (vllm.limit, vllm.takes) == (40 * GIB, 40 * GIB + vllm.driver)
    assert (sglang.limit, sglang.takes) == ((memory - sglang.driver) // 2, (memory + sglang.driver) // 2)


def test_attention_that_sglang_gives_to_fewer_ranks_is_estimated_whole_and_not_certain() -> None:
    model, plain = MODELS["deepseek-v3"], EngineLine("sglang", tensor=8, data=1)
    split, whole = (card_need(model, line, cards=8, memory=141 * GIB)
                    for line in (plain, replace(plain, data=8, attention_data=True)))
    attention = sum(run.count * run.bytes.attention for run in model.layers)
    assert whole.bound_weights == split.bound_weights
    assert whole.weights - split.weights > (attention + model.embedding) * 7 // 8 > 8 * GIB


def test_mxfp4_is_bound_by_its_stored_bytes_and_estimated_as_padded() -> None:
    need = card_need(MODELS["gpt-oss-20b"], EngineLine("vllm"), cards=1, memory=80 * GIB)
    assert (round(need.bound_weights / GIB, 1), round(need.weights / GIB, 1)) == (12.8, 13.7)


def test_a_shortened_type_counts_wherever_its_tensors_lie() -> None:
    layers = [{"count": 2, "bytes": {"split": 450}}]
    wide = tiny(bytes=1000, types={"F32": 800, "BF16": 200}, embedding=100, layers=layers)
    need = card_need(wide, EngineLine("vllm", pipeline=2), cards=2, memory=None)
    assert need.bound_weights == 225  # all 450 of the last stage may be halved
    assert card_need(wide, EngineLine("vllm", pipeline=2, dtype="float"), cards=2, memory=None).bound_weights == 450


def test_a_context_that_llama_cpp_may_shorten_or_no_cache_holds_is_not_certain() -> None:
    model = MODELS["llama-3.1-8b"]
    lengths = {length: card_need(model, EngineLine("llama.cpp", layers_on_cards=99, context=length), cards=1,
                                 memory=24 * GIB).bound_context for length in (None, 0, 4096)}
    assert lengths == {None: 0, 0: 0, 4096: 4096 * 131_072}
    line = EngineLine("vllm", context=4096)
    for other in ({"architecture": "BertModel"}, {"attention_known": False}):
        assert card_need(model.model_copy(update=other), line, cards=1, memory=None).bound_context == 0


def test_a_quantized_checkpoint_may_ask_vllm_for_a_narrow_cache_and_llama_cpp_for_none() -> None:
    tokens = 4096
    fp8, gguf = (card_need(MODELS[name], EngineLine(engine, context=tokens, layers_on_cards=99), cards=1, memory=None)
                 for name, engine in (("qwen3-30b-a3b-fp8", ENGINES[0]), ("qwen3-30b-a3b-q4_k_m", ENGINES[2])))
    assert fp8.bound_context == 98_304 * tokens * 9 // 32
    assert gguf.bound_context == 98_304 * tokens == gguf.context


def test_llama_cpp_s_cells_are_shared_by_its_sequences() -> None:
    one, four = (card_need(MODELS["llama-3.1-8b"], EngineLine("llama.cpp", context=16_384, sequences=count), cards=1,
                           memory=24 * GIB).context for count in (1, 4))
    assert one == four == 2 * GIB


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


def tiny(**fields: object) -> Description:
    """Return the description of a model without weights."""
    return Description.model_validate({
        "apiVersion": "fleetctl/v1", "kind": "Model", "source": "x", "architecture": "x", "parameters": 0, "bytes": 0,
        "types": {}, "positions": 4096, "hidden": 256, "vocabulary": 1000, **fields})


def test_more_stages_than_layers_hold_nothing() -> None:
    model = MODELS["llama-3.1-8b"]
    few, many = (card_need(model, EngineLine("vllm", pipeline=stages), cards=1, memory=None)
                 for stages in (34, MOST_NUMBER))
    assert (few.bound_weights, few.weights) == (many.bound_weights, many.weights)


def test_the_smallest_card_is_found_for_numbers_that_no_card_has() -> None:
    heads = {**dict.fromkeys(("kvHeads", "keySize", "valueSize"), 1 << 50), "architecture": "LlamaForCausalLM"}
    model = tiny(**heads, layers=[{"count": 2, "attention": "full"}])
    for share in (0.9, 1e-9):
        line = EngineLine("vllm", context=MOST_NUMBER, share=share)
        need = card_need(model, line, cards=1, memory=None)
        assert 1 <= int(least_card(model, line, cards=1) * share) / need.bound < 1.001


def test_layers_that_differ_take_what_equal_ones_do() -> None:
    model = MODELS["llama-3.1-8b"]
    single = model.model_copy(update={"layers": [
        run.model_copy(update={"count": 1}) for run in model.layers for _ in range(run.count)]})
    for line in (EngineLine("vllm", pipeline=3), EngineLine("sglang"), EngineLine("llama.cpp", layers_on_cards=7)):
        assert card_need(single, line, cards=2, memory=24 * GIB) == card_need(model, line, cards=2, memory=24 * GIB)


def test_vllm_s_number_of_cache_blocks_is_predicted() -> None:
    """The numbers were logged by vLLM 0.32 on CPUs, where a block has 128 tokens, for 256 MiB of cache."""
    heads = {"heads": 4, "kvHeads": 2, "keySize": 64, "valueSize": 64, "window": 128}
    sliding, full = {"count": 12, "attention": "sliding"}, {"count": 2, "attention": "full"}
    cases: list[tuple[Description, int, int]] = [
        (tiny(**heads, layers=[{"count": 6, "attention": "full"}]), 128, 682),
        (tiny(**heads, layers=[{"count": 4, "attention": "sliding"}]), 128, 1024),
        (tiny(**heads, layers=[sliding, full]), 128, 2048),
        (tiny(**heads, latent={"rank": 512, "rope": 64}, layers=[{"count": 4, "attention": "full"}]), 16, 3640)]
    for model, block, blocks in cases:
        assert (256 << 20) // pool(model, EngineLine("vllm"), model.layers, block=block).block_bytes == blocks


def test_what_no_card_can_do_without_is_that_of_the_smallest_stage_of_a_pipeline() -> None:
    """Which stage a member of a gang has is not told, and the cards of its nodes may differ."""
    model = described("qwen3-8b")
    uneven = card_need(model, EngineLine("vllm", pipeline=8), cards=8, memory=None)
    layer = model.layers[0].bytes.total
    assert uneven.bound == 4 * layer, "36 layers over 8 stages, some with 5"
    assert uneven.weights > 5 * layer
