"""vLLM's own numbers against those of `sizing/`: blocks of the cache, the longest request, weights, and its flags.

Five kinds of architectures, tiny, are made on the spot, loaded by vLLM's CPU build, and described by
`fleetctl model describe`. This tests arithmetic. It says nothing of what else a GPU's memory holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from vllm_world import ENV

from fleetctl.documents.model import Description
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import flags_of, read_engine_line
from fleetctl.sizing.kv_cache import longest, pool, request_bytes

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CACHE, LENGTH, LONGEST, ROOM_BITS = 256 << 20, 1024, 4096, 16
WORDS = ["--kv-cache-memory-bytes", "256M", "--max-model-len", "1K", "--max-num-seqs", "4", "--enforce-eager",
         "--max-num-batched-tokens", "1024", "--skip-tokenizer-init"]
NOT_IN_ITS_PARSER = {"task", "disable-log-requests", "O", "O0", "O1", "O2", "O3"}
"""Flags of older releases, and levels that vLLM rewrites before it parses."""
BLOCK_OF_CPUS, BLOCK_OF_LATENT = 128, 16
"""Tokens of a block in the CPU build; on GPUs, 16."""

COMMON = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096, "tie_word_embeddings": False,
          "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "mamba_ssm_cache_dtype": "float32"}
"""On CPUs the recurrence has 32 bits whatever a file says."""
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 1,
           "mlp_only_layers": []}
SLIDING = ["sliding_attention"] * 5 + ["full_attention"]
MODELS: dict[str, dict[str, Any]] = {
    "grouped": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 6},
    "sliding": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 14,
        "sliding_window": 256, "layer_types": [*SLIDING, *SLIDING, *SLIDING[:2]], "tie_word_embeddings": True,
        "query_pre_attn_scalar": 64},
    "latent": {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_hidden_layers": 4,
        "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False,
        "routed_scaling_factor": 1.0},
    "experts": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 5, **EXPERTS},
    "state": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 8, **EXPERTS,
        "shared_expert_intermediate_size": 64, "full_attention_interval": 4, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25},
    "parallel": {
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "num_hidden_layers": 3,
        "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_ssm": 512, "mamba_n_groups": 1, "mamba_d_state": 64,
        "mamba_d_conv": 4, "mamba_expand": 2},
    "chunked": {
        "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "num_hidden_layers": 8,
        "attention_chunk_size": 256, "no_rope_layers": [1, 1, 1, 0] * 2, "num_local_experts": 4,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 512},
    "sinks": {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 5, "sliding_window": 128,
        "num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {
        "architectures": ["JambaForCausalLM"], "model_type": "jamba", "num_hidden_layers": 8, "attn_layer_period": 4,
        "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4,
        "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 16,
        "use_mamba_kernels": False},
    "states": {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "num_hidden_layers": 4, "state_size": 32,
        "conv_kernel": 4, "expand": 2, "num_heads": 8, "n_groups": 2, "chunk_size": 64}}
"""The five kinds, and more of each: attention and a state side by side, windows that jump, sinks, states alone."""
RUNS: dict[str, tuple[str, list[str]]] = {
    **{name: (name, []) for name in MODELS},
    "all layers full": ("sliding", ["--disable-hybrid-kv-cache-manager"]),
    "one state": ("parallel", ["--no-enable-prefix-caching"])}

ASK = """\
import gc, json, os, sys, time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.model_loader import base_loader
from vllm.model_executor.models import ModelRegistry
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.core import kv_cache_utils
from vllm.v1.engine.llm_engine import LLMEngine

folder, models, runs = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
torch.manual_seed(0)
for name, config in models.items():
    path = os.path.join(folder, name)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path), dtype=torch.bfloat16).save_pretrained(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file)
    for architecture in config["architectures"]:  # else vLLM asks a process of its own about each, for 20 s
        ModelRegistry.register_model(architecture, ModelRegistry.models[architecture].load_model_cls())
loaded, prepare = [], base_loader.process_weights_after_loading


def counted(model, *rest, **more):  # kernels of CPUs store the weights anew, in memory of their own
    loaded.append(sum(weight.nbytes for weight in model.parameters()))
    return prepare(model, *rest, **more)


base_loader.process_weights_after_loading = counted
parser = make_arg_parser(FlexibleArgumentParser())
told = {"flags": {option: action.nargs != 0 for action in parser._actions for option in action.option_strings}}
for run, words in runs.items():
    begun = time.monotonic()
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(parser.parse_args(words)))
    config, groups = engine.vllm_config, engine.engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups
    cache, model = config.cache_config, config.model_config
    told[run] = {
        "blocks": cache.num_gpu_blocks, "block_tokens": cache.block_size,
        "weights": loaded.pop(),
        "in_flight": config.max_in_flight_tokens,
        "request": kv_cache_utils._max_memory_usage_bytes_from_groups(config, groups)}
    model.max_model_len = 4096
    told[run]["longest"] = [
        kv_cache_utils._estimate_max_model_len_from_groups(config, groups, room << 16) for room in range(600)]
    engine.engine_core.shutdown()
    del engine
    gc.collect()
    cleanup_dist_env_and_memory()
    print("measured", run, round(time.monotonic() - begun, 1), "s", flush=True)
print("TOLD", json.dumps(told))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def told(environment: Path, folder: Path) -> dict[str, Any]:
    """What vLLM says of each run, and its flags with whether a value follows."""
    runs = {run: ["--model", str(folder / model), *WORDS, *more] for run, (model, more) in RUNS.items()}
    configs = {name: {**COMMON, **config} for name, config in MODELS.items()}
    done = subprocess.run(
        [environment / "venv" / "bin" / "python", "-c", ASK, folder, json.dumps(configs), json.dumps(runs)],
        capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, **{name: value for name, value in ENV.items() if name != "VLLM_CPU_KVCACHE_SPACE"}})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("measured")))
    answer: dict[str, Any] = json.loads(done.stdout.rpartition("TOLD ")[2])
    return answer


@pytest.mark.parametrize("run", RUNS)
def test_the_cache_of_a_tiny_model_is_predicted_exactly(run: str, told: dict[str, Any], folder: Path) -> None:
    name, more = RUNS[run]
    description = folder / f"{name}.json"
    subprocess.run([sys.executable, "-m", "fleetctl", "model", "describe", folder / name, "--out", description],
                   check=True, capture_output=True)
    model = Description.model_validate_json(description.read_text())
    line = read_engine_line(["vllm", "serve", str(folder / name), *WORDS, *more], {})
    assert (line.uncertain, line.context, line.cache_bytes, model.attention_known) == ((), LENGTH, CACHE, True)
    block = BLOCK_OF_LATENT if model.latent else BLOCK_OF_CPUS
    shared = pool(model, line, model.layers, block=block)
    assert CACHE // shared.block_bytes == told[run]["blocks"]
    assert shared.block_tokens == told[run]["block_tokens"] or name == "states"

    def request(tokens: int) -> int:
        return request_bytes(model, line, model.layers, tokens, in_flight=told[run]["in_flight"], block=block)

    assert request(LENGTH) == told[run]["request"]
    found = [longest(lambda tokens, room=room: request(tokens) <= room << ROOM_BITS, LONGEST)  # type: ignore[misc]
             for room in range(len(told[run]["longest"]))]
    assert found == told[run]["longest"]
    need = card_need(model, line, cards=1, memory=None)
    absorbed = 4 * model.heads * (model.key_size + model.value_size) * model.latent.rank * 2 if model.latent else 0
    assert need.is_certain
    assert need.bound_weights <= told[run]["weights"] == pytest.approx(need.weights - absorbed, rel=0.01)
    assert need.bound_context <= told[run]["request"]


def test_each_flag_of_the_table_is_one_of_vllm_with_a_value_or_without(told: dict[str, Any]) -> None:
    ours = flags_of("vllm")
    real = {option.lstrip("-"): has_value for option, has_value in told["flags"].items()}
    assert {flag for flag, has_value in ours.items() if real.get(flag) != has_value} == NOT_IN_ITS_PARSER
    print("flags of vLLM after which nothing is certain:", *sorted(
        flag for flag in real if flag not in ours and not flag.startswith("no-")))
