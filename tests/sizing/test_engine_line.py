"""What is read from an engine's command line."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.sizing.engine_line import ENGINES, EngineLine, flags_of, read_engine_line
from fleetctl.sizing.fit import CardKind, judge
from tests.sizing.test_public_models import described

SET = {"FLEETCTL_PORT": None, "FLEETCTL_HOST": None, "FLEETCTL_GROUP_SIZE": "2"}


def read(text: str, **variables: str | None) -> EngineLine:
    """Return what is read from a command line and an environment."""
    return read_engine_line(shlex.split(text), {**SET, **variables})


def test_sizes_of_vllm_are_read_in_each_of_its_spellings() -> None:
    for text in ("vllm serve m --tensor-parallel-size 4 --pipeline_parallel_size=2", "vllm serve m -tp 4 -pp=2",
                 "/opt/venv/bin/vllm serve --model m -tp 4 -pp $(FLEETCTL_GROUP_SIZE)",
                 "python3 -m vllm.entrypoints.openai.api_server --model m -tp 4 -pp 2"):
        line = read(text)
        assert (line.engine, line.tensor, line.pipeline, line.ranks, line.uncertain) == ("vllm", 4, 2, 8, ())


def test_a_length_is_read_as_vllm_reads_it() -> None:
    lengths = {"8192": 8192, "32k": 32_000, "1K": 1024, "1.5k": 1500, "auto": -1, "-1": -1}
    assert {text: read(f"vllm serve m --max-model-len {text}").context for text in lengths} == lengths


def test_switches_may_be_turned_off() -> None:
    line = read("vllm serve m --no-enforce-eager --enable-expert-parallel --disable-hybrid-kv-cache-manager"
                " --no-enable-prefix-caching --no-enable-log-outputs")
    assert (line.eager, line.expert_parallel, line.hybrid_cache, line.uncertain) == (False, True, False, ())


def test_values_that_only_the_node_knows_do_not_matter_where_memory_does_not_depend_on_them() -> None:
    line = read("vllm serve m --host $(FLEETCTL_HOST) --port $(FLEETCTL_PORT) --served-model-name a b --api-key $(KEY)",
                KEY=None)
    assert line.uncertain == ()
    assert read("vllm serve m --max-model-len $(LENGTH)", LENGTH=None).uncertain == ("--max-model-len",)
    assert read("vllm serve m --max-model-len $(LENGTH)", LENGTH="4096").context == 4096


@pytest.mark.parametrize("word", [
    "--cpu-offload-gb 4", "--kv-offloading-size 8", "--load-format dummy", "--hf-overrides {}", "--config vllm.yaml",
    "--speculative-config {}", "--kv-transfer-config {}", "--enable-lora", "--no-such-flag", "--tensor-par 2", "-tp8",
    "--gpu-memory-utilization 1.5", "--tensor-parallel-size 0", "--tensor-parallel-size two", "--max-model-len",
    "--additional-config {}", "--decode-context-parallel-size 2", "stray"])
def test_what_may_lower_the_memory_or_is_not_known_is_uncertain(word: str) -> None:
    assert read(f"vllm serve m {word}").uncertain


@pytest.mark.parametrize("text", [
    "bash -c 'vllm serve m'", "env A=b vllm serve m", "podman run vllm/vllm-openai m", "serve m", "vllm bench m", "",
    "python3 server.py -m vllm.entrypoints.openai.api_server"])
def test_a_wrapper_or_another_program_is_no_engine(text: str) -> None:
    line = read(text)
    assert line.engine is None
    assert line.uncertain


def test_variables_of_the_engine_are_uncertain_unless_they_are_known_to_leave_memory_alone() -> None:
    assert read("vllm serve m", VLLM_CACHE_ROOT="/cache", HF_HOME="/hub").uncertain == ()
    assert read("vllm serve m", VLLM_CPU_KVCACHE_SPACE="8", LD_PRELOAD="x.so").uncertain == (
        "VLLM_CPU_KVCACHE_SPACE", "LD_PRELOAD")
    assert read("llama-server -m x", GGML_CUDA_ENABLE_UNIFIED_MEMORY="1").uncertain == (
        "GGML_CUDA_ENABLE_UNIFIED_MEMORY",)


@pytest.mark.parametrize("text", [
    "vllm serve m -O3", "vllm serve m -O 3 --compilation-config {} --compilation-config.mode=3 -cc.level 3",
    "vllm serve m --runner generate --load-format safetensors --load_format=runai_streamer --task auto",
    "vllm serve m --disable-log-requests --override-generation-config.temperature 0 --no-enable-log-requests",
    "vllm serve m --distributed-executor-backend ray --nnodes 2 --node-rank 1 --headless --master-addr h",
    "sglang serve --model-path m --device cuda --cuda-graph-max-bs 16", "llama-server -m x -lv 3 --fit off -sm layer"])
def test_what_leaves_memory_as_it_is_is_known(text: str) -> None:
    assert read(text).uncertain == ()


@pytest.mark.parametrize(("engine", "flags"), [
    ("vllm serve m", """
        --runner pooling, --task embed, --convert classify, --load-format bitsandbytes, --load-format dummy,
        --distributed-executor-backend my.Executor, --hf-overrides.num_hidden_layers 2, --kv-cache-dtype nvfp4,
        --kv-cache-dtype int4_per_token_head, --kv-cache-dtype-skip-layers 0, --num-gpu-blocks-override 8, -dcp 2,
        -pcp 2, --enable-sleep-mode, --mm-encoder-only, -sc {}, $(MORE), --speculative-config.method mtp, --enable-eplb,
        --offload-group-size 2, --quantization-config {}, --worker-cls x.Worker, --model-impl transformers, -tp=8x,
        --gpu-memory-util 0.9, --swap-space 4, --device cpu"""),
    ("python3 -m sglang.launch_server --model-path m", """
        --device cpu, --cpu-offload-gb 20, --moe-dp-size 2, --moe-a2a-backend deepep, --is-embedding, --config s.yaml,
        --kv-cache-dtype fp4_e2m1, --torchao-config int4wo-128, --enable-unified-memory, --mem-frac 0.9,
        --json-model-override-args {}, --offload-group-size 2, --kt-num-gpu-experts 8, --load-format layered"""),
    ("llama-server -m x -ngl 99", """
        -ngl auto, -ot exps=CPU, --cpu-moe, --n-cpu-moe 8, -ts 3;1, -sm row, -dev none, -nkvo, --rpc h:50052, -ncffn 8,
        --override-kv llama.block_count=int:2, --models-dir x, --fit maybe, -ngl $(LAYERS)""")])
def test_what_engines_accept_and_may_lower_the_memory_is_uncertain(engine: str, flags: str) -> None:
    for flag in flags.split(","):
        assert read(f"{engine} {flag.strip()}").uncertain, flag
    assert read(engine).uncertain == ()


def test_of_a_flag_that_is_told_twice_the_last_counts() -> None:
    assert read("vllm serve m -tp 2 --tensor-parallel-size=8").tensor == 8
    assert read("vllm serve m --enforce-eager --no-enforce-eager").eager is False


@pytest.mark.parametrize("name", [
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "VLLM_PP_LAYER_PARTITION", "VLLM_MLA_DISABLE", "LD_AUDIT",
    "VLLM_PLUGINS"])
def test_a_variable_that_changes_cards_layers_or_code_is_uncertain(name: str) -> None:
    assert read("vllm serve m", **{name: "0"}).uncertain == (name,)


def test_sglang_and_llama_cpp_have_tables_of_their_own() -> None:
    sglang = read("python -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention --ep-size 8"
                  " --mem-fraction-static 0.85 --context-length 8192 --port $(FLEETCTL_PORT)")
    assert (sglang.engine, sglang.ranks, sglang.experts, sglang.share, sglang.uncertain) == ("sglang", 8, 8, 0.85, ())
    llama = read("llama-server -hf m:Q4_K_M -ngl 99 -c 16384 -np 4 -ctk q8_0 -ctv q4_0 -fa on --port $(FLEETCTL_PORT)")
    assert (llama.engine, llama.layers_on_cards, llama.context, llama.sequences) == ("llama.cpp", 99, 16384, 4)
    assert (llama.cache_element, llama.value_element, llama.uncertain) == (34 / 32, 18 / 32, ())
    assert read("llama-server -m x -ngl all").layers_on_cards == -1
    assert read("llama-server -m x -ngl auto").uncertain == ("-ngl",)
    assert read("llama-server -m x --n-cpu-moe 4").uncertain


WORDS = st.sampled_from([f"{hyphens}{flag}{value}" for engine in ENGINES for flag in flags_of(engine)
                         for hyphens in ("-", "--", "--no-") for value in ("", "=8", "=auto")])
VALUES = st.sampled_from(["8", "-1", "0", "auto", "1.5k", "9999999999999999t", "0.9", "1e9", "fp8", "", "-", "--", "=",
                          "$(X)", "$(", "{}", "all", "\x00", "\u0662"])


@given(engine=st.sampled_from(["vllm serve", "sglang serve", "llama-server", "python -m sglang.launch_server"]),
       words=st.lists(WORDS | VALUES | st.text(max_size=9), max_size=12), value=st.none() | st.text(max_size=5))
def test_any_words_are_read_and_the_model_is_judged(engine: str, words: list[str], value: str | None) -> None:
    line = read_engine_line([*engine.split(), *words], {**SET, "X": value})
    assert min(line.tensor, line.pipeline, line.data, line.experts) >= 1
    fit = judge(described("qwen3-0.6b"), line, cards=1, card=CardKind("L4", 24 << 30, 8, 8))
    assert fit.need.bound <= fit.need.least or line.context == -1
    assert fit.kind != "certain" or line.uncertain == ()
