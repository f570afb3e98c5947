"""What counts as a secret in a command line and in an environment, and what does not."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from fleetctl.documents.mask import MASK, MAY_BE_SECRET, is_secret_value, masked, masked_words, secrets_in_words

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----"

SECRET_LINES = {
    "vllm serve m --api-key sk-abc": "vllm serve m --api-key ***",
    "vllm serve m --api-key=sk-abc --port 1": "vllm serve m '--api-key=***' --port 1",
    "vllm serve m --api_key hunter": "vllm serve m --api_key ***",
    "vllm serve m --hf-token hf_x": "vllm serve m --hf-token ***",
    "vllm serve m --hf-token 'two words'": "vllm serve m --hf-token ***",
    "sglang --api-key k --admin-api-key k2": "sglang --api-key *** --admin-api-key ***",
    "sglang --ssl-keyfile k.pem --ssl-keyfile-password p": "sglang --ssl-keyfile k.pem --ssl-keyfile-password ***",
    "tgi --api-key abc --ngrok-authtoken def": "tgi --api-key *** --ngrok-authtoken ***",
    "llama-server --api-key abc,def --ssl-key-file k.pem": "llama-server --api-key *** --ssl-key-file k.pem",
    "llama-server -hft hf_AbCdEfGh1234": "llama-server -hft ***",
    "x --token abc --password 123456 --client-secret=a=b": "x --token *** --password *** '--client-secret=***'",
    "x --redis-password 5f --secret-key s --access-key a": "x --redis-password *** --secret-key *** --access-key ***",
    "env HF_TOKEN=abc OTHER=1 vllm": "env 'HF_TOKEN=***' OTHER=1 vllm",
    "x --header 'Authorization: Bearer abc123def'": "x --header 'Authorization: Bearer ***'",
    "x -H 'Authorization: Basic dXNlcjpwYXNz'": "x -H 'Authorization: Basic ***'",
    "x -H 'authorization: bearer opaque'": "x -H 'authorization: bearer ***'",
    "x --h '{\"Authorization\": \"Bearer abc123def\"}'": "x --h '{\"Authorization\": \"Bearer ***\"}'",
    "x -H 'X-Api-Key: abc'": "x -H 'X-Api-Key: ***'",
    "sh -c 'vllm serve m --api-key sk-12345678 --port 1'": "sh -c 'vllm serve m --api-key *** --port 1'",
    "sh -c 'export HF_TOKEN=\"a b\"; vllm --token abc'": "sh -c 'export HF_TOKEN=\"***\"; vllm --token ***'",
    "x --config '{\"api_key\": \"abc\", \"size\": 5}'": "x --config '{\"api_key\": \"***\", \"size\": 5}'",
    "x --config '{\"clientSecret\":\"abc\"}'": "x --config '{\"clientSecret\":\"***\"}'",
    "x --url https://me:pass@host/x": "x --url 'https://***@host/x'",
    "x --url=redis://:pass@host:6379/0": "x '--url=redis://***@host:6379/0'",
    "x https://hf_token@huggingface.co": "x 'https://***@huggingface.co'",
    "x 'https://host/f?token=abc&size=1'": "x 'https://host/f?token=***&size=1'",
    "x --note hf_abcdefghijklmnopqrstuvwxyzABCDEFGH": "x --note ***",
    "x sk-proj-Ab12_34-56": "x ***",
    "x sk-not-for-anyone": "x ***",
    "x sk-ant-REDACTED": "x ***",
    "x ghp_abcdefghijklmnopqrstuvwxyz0123456789": "x ***",
    "x github_pat_11AAAAAAA0abcdefghijkl_mnopqrs": "x ***",
    "x glpat-abcdefghij0123456789": "x ***",
    "x AKIAIOSFODNN7EXAMPLE": "x ***",
    f"x {JWT}": "x ***",
    f"x {shlex.quote(PEM)}": "x ***",
}

HARMLESS_LINES = [
    "vllm serve meta-llama/Llama-3.1-8B --host 0.0.0.0 --port $(FLEETCTL_PORT) --tensor-parallel-size 8",
    "vllm serve m --api-key $(API_KEY) --hf-token --tokenizer org/tokenizer --tokenizer-mode auto --api-key EMPTY",
    "vllm serve m --max-num-batched-tokens 8192 --max-logprobs 5 --kv-cache-dtype fp8 --key-cache-dtype fp8",
    "vllm serve m --return-tokens-as-token-ids --enable-prompt-tokens-details --ssl-keyfile /etc/tls.key",
    "vllm serve m --hf-overrides '{\"rope_scaling\": {\"type\": \"yarn\"}}' --load-format hf_transformers",
    "vllm serve m --compilation-config '{\"level\": 3, \"key\": \"x\", \"max_token\": 131072}' --otlp http://otel:4317",
    "vllm serve m --served-model-name task-1234 risk-assessment-2024-01 --image-token '<image>' --stop-token '</s>'",
    "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --skip-tokenizer-init --max-total-tokens 100000",
    "sglang --speculative-num-draft-tokens 4 --speculative-token-map map.pt --eos-token 2 --api-key-file /run/key",
    "sglang --dist-init-addr $(FLEETCTL_LEADER_ADDRESS):$(FLEETCTL_LEADER_PORT) --api-key \"$API_KEY\"",
    "llama-server -m /models/x.gguf -hf ggml-org/gemma-3:Q4_K_M --api-key-file /run/k -ctk q8_0 -hft $(HF_TOKEN)",
    "llama-server --cache-type-k q8_0 --keep 5 --token-healing 1 --chat-template-kwargs '{\"enable_thinking\": false}'",
    "text-generation-launcher --model-id m --max-batch-prefill-tokens 4 --tokenizer-config-path /t --revision sk-learn",
    "sh -c 'exec vllm serve m --api-key \"$(cat /run/secrets/key)\" --api-key ${API_KEY}'",
    "x --token-env HF_TOKEN --password-file /run/p --secret-name s --sort-key name --public-key abc --token true",
    "x https://host/a@b git@github.com:org/repo ssh://git@host/x https://host:8000/path@v1 --system 'Secret: be kind'",
    "x https://$(USER):$(PASSWORD)@host 'Authorization: Bearer $(TOKEN)' --api-key *** --api-key '<your key>'",
    "x --about 'Bearer Authentication' 'basic setting' 'Authorization: Bearer ${TOKEN}'",
    "x '-----BEGIN CERTIFICATE-----\nabc' --key k --basic 5 --monkey business --keyword x --passage y",
]


@pytest.mark.parametrize("line", SECRET_LINES)
def test_a_secret_in_a_command_line_is_masked_and_nothing_else(line: str) -> None:
    words = shlex.split(line)
    shown = masked_words(words)
    assert shlex.join(shown) == shlex.join(shlex.split(SECRET_LINES[line]))
    assert masked_words(shown) == shown
    assert MAY_BE_SECRET.search("\0".join(words))


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_ordinary_flags_and_references_are_no_secrets(line: str) -> None:
    assert list(secrets_in_words(shlex.split(line))) == []


@pytest.mark.parametrize(("name", "value"), [
    ("HF_TOKEN", "hf_abc"), ("hf_token", "x"), ("API_KEY", "x"), ("VLLM_API_KEY_2", "x"), ("KEY", "x"), ("APIKEY", "x"),
    ("MY_SECRET", "x"), ("SECRET_KEY_BASE", "x"), ("TOKEN_OF_PROD", "x"), ("DB_PASSWORD", "1234"), ("PGPASSWORD", "x"),
    ("AWS_SECRET_ACCESS_KEY", "a/b+c"), ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"), ("ANY", "hf_AbCdEf12345"),
    ("DATABASE_URL", "postgres://me:pass@db/x"), ("ANY", JWT), ("ANY", PEM), ("LLAMA_ARG_API_KEY", "x"),
])
def test_a_literal_secret_in_an_environment_is_found(name: str, value: str) -> None:
    assert is_secret_value(name, value)
    assert MAY_BE_SECRET.search(f"{name}={value}")


@pytest.mark.parametrize(("name", "value"), [
    ("TOKENIZERS_PARALLELISM", "false"), ("TOKENIZER", "org/x"), ("MAX_TOKENS", "8192"), ("HF_TOKEN_PATH", "/run/t"),
    ("KEY_CACHE_DTYPE", "fp8"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"), ("EOS_TOKEN", "</s>"), ("PUBLIC_KEY", "abc"),
    ("SSH_KEY", "/home/me/.ssh/id"), ("KEYCLOAK_URL", "https://sso"), ("SECRET_NAME", "x"), ("API_KEY", ""),
    ("API_KEY", "$(OTHER)"), ("API_KEY", "EMPTY"), ("HF_HUB_OFFLINE", "1"), ("VLLM_ATTENTION_BACKEND", "FLASH_ATTN"),
    ("MONKEY", "x"), ("PASSENGERS", "x"), ("NCCL_SOCKET_IFNAME", "eth0"),
])
def test_ordinary_variables_are_no_secrets(name: str, value: str) -> None:
    assert not is_secret_value(name, value)


def test_command_and_args_are_one_command_line() -> None:
    engine: dict[str, Any] = {"command": ["serve", "--api-key"], "args": ["hunter2", "--port", "1"],
                              "env": {"args": "a"}, "readiness": {"exec": {"command": ["curl", "--token", "hunter2"]}}}
    shown = json.dumps(masked({"workers": [{"members": [{"engine": engine}]}]}))
    assert "hunter2" not in shown
    assert f'"args": ["{MASK}", "--port", "1"]' in shown
    assert engine["args"][0] == "hunter2", "the value itself stays"


@pytest.mark.parametrize("above", [("engine", "readiness"), ("engine", "liveness"), ("reload",)])
def test_a_secret_in_the_path_of_a_request_is_masked(above: tuple[str, ...]) -> None:
    value = {"path": "/health?api_key=hunter5&size=1", "port": 1}
    assert masked(value, (*above, "http")) == {"path": f"/health?api_key={MASK}&size=1", "port": 1}
    assert masked(value["path"], (*above, "http", "path")) == f"/health?api_key={MASK}&size=1"
    assert masked({"path": "/v1/tokens?n=3"}, (*above, "http")) == {"path": "/v1/tokens?n=3"}
    assert masked({"path": None}, (*above, "http")) == {"path": None}


@pytest.mark.parametrize("odd", [{"command": None}, {"command": [1, {}], "args": "text"}, {"args": ["--token", "x"]}])
def test_a_damaged_command_line_is_no_error(odd: dict[str, Any]) -> None:
    assert "x" not in json.dumps(masked({"engine": odd})).replace("text", "")


@pytest.mark.parametrize("unit", ["a.", "a: ", "a='", "gh", "://", "http://a", "eyJ", "-----BEGIN ", "--a ", "Bearer "])
def test_a_long_text_is_read_once_and_not_again_from_every_character(unit: str) -> None:
    text = "x " + unit * (60_000 // len(unit))
    assert masked_words([text]) == [text]
