"""What is read from an engine's command line."""

from __future__ import annotations

import shlex

import pytest

from fleetctl.sizing.engine_line import EngineLine, read_engine_line

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
    "--speculative-config {}", "--kv-transfer-config {}", "--enable-lora", "--no-such-flag", "--tensor-par 2", "-O3",
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
