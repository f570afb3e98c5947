"""Reads from an engine's command line what its memory depends on: vLLM, SGLang, llama.cpp.

Each engine has two tables: flags whose value is read, and flags that leave memory as it is. Any other word, an
environment variable of the engine, or a value that is only known on the node is `uncertain`: nothing is certain about
the memory then. Flags: vLLM 0.32 (`vllm serve --help=all`), SGLang 0.5.23 (`python -m sglang.launch_server --help`),
llama.cpp (https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Engine = Literal["vllm", "sglang", "llama.cpp"]
ENGINES: tuple[Engine, ...] = ("vllm", "sglang", "llama.cpp")
LEAST_NUMBER, MOST_NUMBER = -(1 << 20), 1 << 50

_CACHE_BYTES = {"auto": 0.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "bf16": 2.0, "f16": 2.0, "f32": 4.0,
                "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "q8_0": 34 / 32, "q5_1": 24 / 32,
                "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32}
"""Bytes of an element of the KV cache; 0 = as the model's."""
_WORDS: dict[str, dict[str, float]] = {"layers": {"all": -1}, "length": {"auto": -1}, "element": _CACHE_BYTES}
_SHORTENED = {"k": 1000, "m": 10 ** 6, "g": 10 ** 9, "t": 10 ** 12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30,
              "T": 1 << 40}
"""Suffixes of numbers that vLLM reads, by `vllm/utils/argparse_utils.py`: lower case counts in thousands."""


@dataclass(frozen=True, slots=True)
class EngineLine:
    """What the memory of an engine depends on. Parallel sizes count ranks; None = the line does not say.

    `context` = the longest request in tokens, -1 = as long as fits (vLLM), 0 = the model's (llama.cpp). `share` = of
    the card's memory, vLLM's of the total, SGLang's of what is free. `cache_element` = bytes of an element of the KV
    cache, `value_element` = of one of its values; 0 = as the model's. `layers_on_cards` (llama.cpp) = -1 for all.
    `uncertain` = the words that may lower the memory, or are not known here.
    """

    engine: Engine | None = None
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: int = 1
    expert_parallel: bool = False
    attention_data: bool = False
    context: int | None = None
    share: float | None = None
    cache_bytes: int | None = None
    cache_element: float = 0.0
    value_element: float = 0.0
    sequences: int | None = None
    batched_tokens: int | None = None
    eager: bool = False
    dtype: str = "auto"
    quantization: str | None = None
    hybrid_cache: bool = True
    full_sliding_cache: bool = False
    prefix_cache: bool = True
    text_only: bool = False
    layers_on_cards: int | None = None
    uncertain: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """The number of cards that one replica uses."""
        return self.tensor * self.pipeline * (1 if self.attention_data else self.data)


@dataclass(frozen=True, slots=True)
class _Table:
    """Flags without hyphens before them. `reads`: flag to field and kind of value; "" as kind = no value follows.

    `only` = flags that leave memory as it is with these values alone.
    """

    reads: Mapping[str, tuple[str, str]]
    switches: frozenset[str]
    values: frozenset[str]
    only: Mapping[str, frozenset[str]]
    variables: frozenset[str]
    prefixes: tuple[str, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VLLM = _Table(
    reads={
        **dict.fromkeys(("tensor-parallel-size", "tp"), ("tensor", "count")),
        **dict.fromkeys(("pipeline-parallel-size", "pp"), ("pipeline", "count")),
        **dict.fromkeys(("data-parallel-size", "dp"), ("data", "count")),
        **dict.fromkeys(("enable-expert-parallel", "ep"), ("expert_parallel", "")),
        "max-model-len": ("context", "length"), "max-num-seqs": ("sequences", "count"),
        "max-num-batched-tokens": ("batched_tokens", "number"), "kv-cache-memory-bytes": ("cache_bytes", "number"),
        **dict.fromkeys(("gpu-memory-utilization", "device-memory-utilization"), ("share", "share")),
        "kv-cache-dtype": ("cache_element", "element"), "enforce-eager": ("eager", ""), "dtype": ("dtype", "text"),
        **dict.fromkeys(("quantization", "q"), ("quantization", "text")), "language-model-only": ("text_only", ""),
        "enable-prefix-caching": ("prefix_cache", ""), "disable-hybrid-kv-cache-manager": ("hybrid_cache", "off")},
    switches=_words("""
        headless trust-request-chat-template return-tokens-as-token-ids enable-auto-tool-choice trust-remote-code
        exclude-tools-when-tool-choice-none enable-prompt-tokens-details enable-per-request-metrics
        enable-server-load-tracking enable-force-include-usage enable-tokenizer-info-endpoint enable-log-outputs
        enable-log-deltas log-error-stack disable-uvicorn-access-log allow-credentials enable-ssl-refresh
        enable-request-id-headers disable-fastapi-docs enable-offline-docs skip-tokenizer-init use-tqdm-on-load
        disable-custom-all-reduce enable-chunked-prefill
        no-enable-chunked-prefill async-scheduling no-async-scheduling disable-cascade-attn kv-cache-metrics
        cudagraph-metrics enable-mfu-metrics disable-log-stats aggregate-engine-logging disable-log-requests
        enable-log-requests no-enable-log-requests return-sampling-mask numa-bind enable-logging-iteration-details
        data-parallel-hybrid-lb data-parallel-external-lb dph dpe trust-request-mm-kwargs
        interleave-mm-strings skip-mm-profiling jit-monitor-verbose enable-flashinfer-autotune
        enable-layerwise-nvtx-tracing scheduler-reserve-full-isl O0 O1 O2 O3"""),
    values=_words("""
        api-server-count asc chat-template chat-template-content-format default-chat-template-kwargs response-role
        tool-call-parser tool-parser-plugin tool-server max-log-len sse-keep-alive-interval host port grpc-port uds
        uvicorn-log-level disable-access-log-for-endpoints allowed-origins allowed-methods allowed-headers api-key
        ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs ssl-ciphers root-path middleware model tokenizer
        seed allowed-local-media-path allowed-media-domains revision code-revision tokenizer-revision
        max-logprobs logprobs-mode served-model-name hf-token generation-config override-generation-config
        download-dir safetensors-load-strategy safetensors-prefetch-num-threads safetensors-prefetch-block-size
        ignore-patterns attention-backend mamba-backend moe-backend linear-backend reasoning-parser
        reasoning-parser-plugin master-addr master-port nnodes n node-rank r
        distributed-timeout-seconds data-parallel-rank dpn data-parallel-start-rank dpr data-parallel-size-local dpl
        data-parallel-address dpa data-parallel-rpc-port dpp data-parallel-backend dpb all2all-backend
        max-parallel-loading-workers prefix-caching-hash-algo limit-mm-per-prompt media-io-kwargs
        mm-processor-kwargs mm-processor-cache-gb mm-processor-cache-type log-level logging-config
        show-hidden-metrics-for-version otlp-traces-endpoint collect-detailed-traces scheduling-policy
        stream-interval long-prefill-token-threshold max-num-queued-reqs shutdown-timeout kv-events-config
        structured-outputs-config block-size renderer-num-workers compilation-config cc optimization-level O
        max-cudagraph-capture-size cudagraph-capture-sizes kv-cache-metrics-sample custom-histogram-buckets
        mm-encoder-tp-mode mm-encoder-attn-backend max-num-queued-tokens numa-bind-nodes numa-bind-cpus
        cpu-distributed-timeout-seconds tool-strict-level"""),
    only={
        "runner": _words("auto generate"), "task": _words("auto generate"), "convert": _words("auto none"),
        "distributed-executor-backend": _words("mp ray uni external_launcher"),
        "config-format": _words("auto hf mistral"), "tokenizer-mode": _words("auto hf slow mistral deepseek_v32"),
        "load-format": _words("auto pt safetensors mistral fastsafetensors runai_streamer instanttensor")},
    variables=_words("""
        VLLM_CACHE_ROOT VLLM_CONFIG_ROOT VLLM_ASSETS_CACHE VLLM_XLA_CACHE_PATH VLLM_LOGGING_LEVEL VLLM_LOGGING_PREFIX
        VLLM_CONFIGURE_LOGGING VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_STREAM VLLM_LOG_STATS_INTERVAL VLLM_API_KEY
        VLLM_PORT VLLM_HOST_IP VLLM_NO_USAGE_STATS VLLM_DO_NOT_TRACK VLLM_USAGE_SOURCE VLLM_USAGE_STATS_SERVER
        VLLM_RPC_TIMEOUT VLLM_ENGINE_ITERATION_TIMEOUT_S VLLM_ENGINE_READY_TIMEOUT_S VLLM_HTTP_TIMEOUT_KEEP_ALIVE
        VLLM_IMAGE_FETCH_TIMEOUT VLLM_WORKER_MULTIPROC_METHOD VLLM_USE_MODELSCOPE VLLM_KEEP_ALIVE_ON_ENGINE_DEATH
        VLLM_DISABLE_COMPILE_CACHE VLLM_USE_V1 VLLM_DEBUG_LOG_API_SERVER_RESPONSE VLLM_SERVER_DEV_MODE
        VLLM_NCCL_SO_PATH VLLM_FLASH_ATTN_VERSION VLLM_ATTENTION_BACKEND VLLM_RINGBUFFER_WARNING_INTERVAL"""),
    prefixes=("VLLM_",))

_SGLANG = _Table(
    reads={
        **dict.fromkeys(("tp-size", "tensor-parallel-size", "tp"), ("tensor", "count")),
        **dict.fromkeys(("pp-size", "pipeline-parallel-size", "pp"), ("pipeline", "count")),
        **dict.fromkeys(("dp-size", "data-parallel-size", "dp"), ("data", "count")),
        **dict.fromkeys(("ep-size", "expert-parallel-size", "ep"), ("experts", "count")),
        "enable-dp-attention": ("attention_data", ""), "context-length": ("context", "length"),
        "mem-fraction-static": ("share", "share"), "max-running-requests": ("sequences", "count"),
        "chunked-prefill-size": ("batched_tokens", "number"), "kv-cache-dtype": ("cache_element", "element"),
        "dtype": ("dtype", "text"), "quantization": ("quantization", "text"), "disable-cuda-graph": ("eager", ""),
        "disable-hybrid-swa-memory": ("hybrid_cache", "off")},
    switches=_words("""
        trust-remote-code skip-tokenizer-init enable-metrics log-requests show-time-cost skip-server-warmup
        enable-cache-report disable-radix-cache disable-overlap-schedule enable-mixed-chunk disable-custom-all-reduce
        enable-p2p-check sleep-on-idle use-ray enable-trace disable-chunked-prefix-cache enable-ssl-refresh
        enable-priority-scheduling enable-tokenizer-batch-encode enable-mfu-metrics allow-auto-truncate
        stream-response-default-include-usage weight-loader-disable-mmap enable-deterministic-inference"""),
    values=_words("""
        model-path model tokenizer-path tokenizer-mode tokenizer-worker-num host port fastapi-root-path grpc-port
        ssl-keyfile ssl-certfile ssl-ca-certs ssl-keyfile-password api-key admin-api-key served-model-name
        weight-version chat-template completion-template reasoning-parser tool-call-parser tool-server
        sampling-defaults stream-interval revision load-balance-method nccl-port dist-timeout dist-init-addr
        nccl-init-addr nnodes node-rank base-gpu-id gpu-id-step random-seed watchdog-timeout log-level log-level-http
        log-requests-level log-requests-format decode-log-interval download-dir schedule-policy
        schedule-conservativeness max-queued-requests attention-backend decode-attention-backend
        prefill-attention-backend sampling-backend grammar-backend warmups file-storage-path
        otlp-traces-endpoint preferred-sampling-params collect-tokens-histogram max-prefill-tokens page-size
        cuda-graph-max-bs cuda-graph-bs moe-runner-backend fp8-gemm-backend radix-eviction-policy"""),
    only={"device": _words("cuda"), "load-format": _words("auto pt safetensors fastsafetensors runai_streamer")},
    variables=_words("""
        SGLANG_HOST_IP SGLANG_PORT SGLANG_LOG_LEVEL SGLANG_LOGGING_CONFIG_PATH SGLANG_USE_MODELSCOPE
        SGLANG_HEALTH_CHECK_TIMEOUT SGLANG_CACHE_DIR SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK"""),
    prefixes=("SGLANG_", "SGL_"))

_LLAMA = _Table(
    reads={
        **dict.fromkeys(("ctx-size", "c"), ("context", "length")),
        **dict.fromkeys(("n-gpu-layers", "gpu-layers", "ngl"), ("layers_on_cards", "layers")),
        **dict.fromkeys(("parallel", "np"), ("sequences", "number")),
        **dict.fromkeys(("ubatch-size", "ub"), ("batched_tokens", "number")),
        **dict.fromkeys(("cache-type-k", "ctk"), ("cache_element", "element")),
        **dict.fromkeys(("cache-type-v", "ctv"), ("value_element", "element")),
        "swa-full": ("full_sliding_cache", "")},
    switches=_words("""
        jinja no-jinja metrics slots no-slots props cont-batching no-cont-batching cb nocb mlock no-mmap mmap
        kv-unified kvu no-kv-unified no-webui webui log-disable log-prefix log-timestamps offline verbose v
        no-warmup warmup context-shift no-context-shift embedding embeddings reranking rerank special"""),
    values=_words("""
        model m model-url mu hf-repo hf hfr hf-file hff hf-token hft docker-repo dr alias a host port path api-prefix
        api-key api-key-file ssl-key-file ssl-cert-file chat-template chat-template-file chat-template-kwargs
        reasoning-format reasoning-budget threads t threads-batch tb threads-http timeout to batch-size b n-predict n
        predict keep seed s temp temperature top-k top-p min-p repeat-penalty repeat-last-n presence-penalty
        frequency-penalty samplers slot-save-path slot-prompt-similarity sps log-file log-verbosity verbosity cpu-mask
        C prio poll numa flash-attn fa cache-reuse defrag-thold dt pooling rope-freq-base lv log-colors tags
        cache-ram cram fit-target fitt fit-ctx fitc rope-scaling rope-scale yarn-orig-ctx"""),
    only={"fit": _words("on off"), **dict.fromkeys(("split-mode", "sm"), _words("layer")),
          **dict.fromkeys(("load-mode", "lm"), _words("auto none mmap mlock mmap+mlock dio"))},
    variables=_words("LLAMA_CACHE LLAMA_LOG_FILE LLAMA_LOG_COLORS LLAMA_LOG_VERBOSITY LLAMA_API_KEY"),
    prefixes=("LLAMA_", "GGML_"))

_TABLES: dict[Engine, _Table] = {"vllm": _VLLM, "sglang": _SGLANG, "llama.cpp": _LLAMA}
_ELSEWHERE = _words("""
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONHOME PYTHONSTARTUP PATH CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
    NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK GGML_VK_VISIBLE_DEVICES""")
"""Variables that may bring in other code, or other cards."""
_MODULES: dict[str, Engine] = {
    "vllm.entrypoints.openai.api_server": "vllm", "vllm.entrypoints.launchers.api_server": "vllm",
    "sglang.launch_server": "sglang"}
_REFERENCE = re.compile(r"\$\(([^()]*)\)")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def read_engine_line(words: Sequence[str], variables: Mapping[str, str | None]) -> EngineLine:
    """Return what the memory of the engine with this command line and environment depends on.

    `words` = `command` and `args`; `variables` = `env` and those that fleetctl sets, None = known on the node alone.
    """
    engine, rest = _engine(words)
    if engine is None:
        return EngineLine(uncertain=(words[0] if words else "",))
    table = _TABLES[engine]
    found: dict[str, Any] = {}
    uncertain = [name for name in variables if name in _ELSEWHERE or (
        name.startswith(table.prefixes) and name not in table.variables)]
    for written, flag, values in _flags(rest, table):
        name, kind = table.reads.get(flag, ("", ""))
        is_off = not name and flag.startswith("no-")
        if is_off:
            name, kind = table.reads.get(flag.removeprefix("no-"), ("", ""))
        if name and kind in ("", "off"):
            found[name] = (kind == "") != is_off
        elif name and not is_off and len(values) == 1 and (
                read := _read(kind, _expanded(values[0], variables))) is not None:
            found[name] = read
        elif name or not (
                all(value in table.only[flag] for value in values) if flag in table.only else
                flag.partition(".")[0] in table.values or flag.removeprefix("no-") in table.switches):
            uncertain.append(written)
    line = EngineLine(engine, uncertain=tuple(dict.fromkeys(uncertain)))
    line = replace(line, **found)
    return replace(line, value_element=line.value_element if engine == "llama.cpp" else line.cache_element)


def flags_of(engine: Engine) -> dict[str, bool]:
    """Return the flags of an engine's table, each with whether a value follows it."""
    table = _TABLES[engine]
    return {**dict.fromkeys(table.switches, False), **dict.fromkeys((*table.values, *table.only), True),
            **{flag: kind not in ("", "off") for flag, (_, kind) in table.reads.items()}}


def _flags(words: Sequence[str], table: _Table) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each flag as written, its name, and its values; a word that is neither, with an empty name.

    The first word after `vllm serve` may be the model.
    """
    at = 1 if table is _VLLM and words and not _is_flag(words[0]) else 0
    while at < len(words):
        written, has_value, value = words[at].partition("=")
        at += 1
        if not _is_flag(written):
            yield words[at - 1], "", []
            continue
        flag = written.lstrip("-").replace("_", "-")
        values = [value] if has_value else []
        takes_one = table.reads.get(flag, ("", ""))[1] not in ("", "off")
        while not has_value and at < len(words) and not _is_flag(words[at]) and (
                flag.partition(".")[0] in table.values or flag in table.only or (takes_one and not values)):
            values.append(words[at])
            at += 1
        yield written, flag, values


def _engine(words: Sequence[str]) -> tuple[Engine | None, Sequence[str]]:
    """Return the engine that a command line starts, and the words after its name."""
    name = words[0].rpartition("/")[2] if words else ""
    if name in ("vllm", "sglang") and words[1:2] == ["serve"]:
        return ("vllm" if name == "vllm" else "sglang"), words[2:]
    if name == "llama-server":
        return "llama.cpp", words[1:]
    if _PYTHON.fullmatch(name):
        options = next((at for at, word in enumerate(words) if word == "-m"), len(words))
        if all(word in ("-u", "-O") for word in words[1:options]) and options + 1 < len(words):
            return _MODULES.get(words[options + 1]), words[options + 2:]
    return None, words


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word) and word != "-"


def _expanded(text: str, variables: Mapping[str, str | None]) -> str | None:
    """Return a value with `$(NAME)` expanded; None if one is not known before the engine starts."""
    known = {name: value for name, value in variables.items() if value is not None}
    if any(name not in known for name in _REFERENCE.findall(text)):
        return None
    return _REFERENCE.sub(lambda match: known[match[1]], text)


def _read(kind: str, text: str | None) -> int | float | str | None:
    """Return a value of this kind; None if it is none, or if the engine chooses it by what is free."""
    if text is None or kind == "text":
        return text
    if kind in _WORDS and text.lower() in _WORDS[kind]:
        return _WORDS[kind][text.lower()]
    if kind == "share":
        return float(text) if re.fullmatch(r"1(\.0*)?|0?\.\d{1,9}", text) and float(text) > 0 else None
    match = re.fullmatch(r"(-?\d{1,16})(?:\.(\d{1,9}))?([kmgtKMGT]?)", text)
    if not match or (match[2] and not match[3]):
        return None
    number = int(float(f"{match[1]}.{match[2] or 0}") * _SHORTENED.get(match[3], 1))
    if kind == "layers":
        return max(number, -2) + (number <= -2) if number != -1 else None
    return number if kind != "element" and (1 if kind == "count" else LEAST_NUMBER) <= number <= MOST_NUMBER else None
