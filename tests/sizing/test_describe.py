"""Describing a model from a folder, from a server with ranges, and from sources that cannot be what they say."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleetctl.sizing.describe import DescribeError, describe
from tests.sizing.model_server import of_folder, serving

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
          "vocab_size": 100, "max_position_embeddings": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 128, "torch_dtype": "bfloat16"}
LAYER = {"self_attn.q_proj.weight": [64, 64], "self_attn.k_proj.weight": [32, 64], "self_attn.v_proj.weight": [32, 64],
         "self_attn.o_proj.weight": [64, 64], "mlp.gate_proj.weight": [128, 64], "mlp.up_proj.weight": [128, 64],
         "mlp.down_proj.weight": [64, 128], "input_layernorm.weight": [64], "post_attention_layernorm.weight": [64]}
TENSORS = {"model.embed_tokens.weight": [100, 64], "lm_head.weight": [100, 64], "model.norm.weight": [64],
           **{f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in LAYER.items()}}
PARAMETERS = 2 * 6400 + 64 + 2 * (2 * 4096 + 2 * 2048 + 3 * 8192 + 128)


def header_of(tensors: dict[str, list[int]]) -> dict[str, Any]:
    """Return the header of a safetensors file with these tensors, all bfloat16."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        size = 2
        for one in shape:
            size *= one
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    return entries


def write_safetensors(path: Path, entries: dict[str, Any], size: int | None = None) -> None:
    """Write a file with this header, and bytes of which none may be read."""
    text = json.dumps(entries).encode()
    ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + (max(ends, default=0) if size is None else size))


def write_model(folder: Path) -> None:
    """Write a model in two shards."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = sorted(TENSORS)
    shards = {f"model-0000{number}-of-00002.safetensors": names[number - 1::2] for number in (1, 2)}
    for shard, of_shard in shards.items():
        write_safetensors(folder / shard, header_of({name: TENSORS[name] for name in of_shard}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({
        "metadata": {"total_size": 7}, "weight_map": {name: shard for shard, own in shards.items() for name in own}}))


def test_a_folder_and_a_server_give_the_same_description(tmp_path: Path) -> None:
    write_model(tmp_path)
    model = describe(str(tmp_path))
    with serving(of_folder(tmp_path)) as (url, asked):
        served = describe(url)
    assert served.model_copy(update={"source": model.source}) == model
    assert (model.parameters, model.bytes, model.types) == (PARAMETERS, 2 * PARAMETERS, {"BF16": 2 * PARAMETERS})
    assert [run.count for run in model.layers] == [2]
    data = model.bytes
    assert sum(end - begin for name, begin, end in asked.seen if name.endswith(".safetensors")) < sum(
        path.stat().st_size for path in tmp_path.glob("*.safetensors")) - data + 16


def test_a_server_without_ranges_is_left_before_the_model_has_come(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(lambda asked: asked.send(200, (tmp_path / asked.path[1:]).read_bytes())) as (url, _), pytest.raises(
            DescribeError, match="does not answer to ranges"):
        describe(url)


def gguf(metadata: dict[str, Any], tensors: dict[str, tuple[list[int], int]], *, data: int) -> bytes:
    """Return the bytes of a GGUF file: tensors have their dimensions in its order, and the number of a type."""
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        body += text(key)
        body += struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
    begins = 0
    for name, (shape, kind) in tensors.items():
        body += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in shape)
        body += struct.pack("<IQ", kind, begins)
        begins += data // len(tensors)
    return body + bytes(-len(body) % 32 + data)


LLAMA = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 256,
         "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.context_length": 4096}


def test_a_gguf_file_is_described_by_the_types_in_its_header(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": ([256, 100], 12), "blk.0.attn_q.weight": ([256, 256], 12)}
    (tmp_path / "tiny.gguf").write_bytes(gguf(LLAMA, tensors, data=2 * 36_864))
    model = describe(str(tmp_path / "tiny.gguf"))
    assert (model.architecture, model.types, model.vocabulary, model.tied) == (
        "llama", {"Q4_K": 256 * 356 // 256 * 144}, 100, True)
    assert describe(str(tmp_path)) == model


def test_of_several_gguf_files_one_must_be_named(tmp_path: Path) -> None:
    for name in ("a-Q4_K_M.gguf", "a-Q8_0.gguf"):
        (tmp_path / name).write_bytes(gguf(LLAMA, {"token_embd.weight": ([256, 100], 12)}, data=14_400))
    with pytest.raises(DescribeError, match=r"--file, such as a-Q4_K_M\.gguf"):
        describe(str(tmp_path))
    assert describe(str(tmp_path), file="a-Q8_0.gguf").bytes == 14_400


def hostile_headers() -> dict[str, bytes]:
    """Return files that are no safetensors files, by what is wrong with them."""
    def file(entries: Any, size: int = 0) -> bytes:
        text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
        return struct.pack("<Q", len(text)) + text + bytes(size)

    one = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
    return {
        "empty": b"", "short": b"\1\0", "length beyond the file": struct.pack("<Q", 1 << 40) + b"{}",
        "length of all": b"\xff" * 8 + b"{}", "no JSON": file(b"{" * 64), "deep": file(b"[" * 100_000),
        "a list": file([]), "a number": file(b"7"), "a name twice": file(b'{"a":1,"a":1}'),
        "unknown type": file({"a": {**one, "dtype": "Q9"}}, 8), "negative": file({"a": {**one, "shape": [-2, -2]}}, 8),
        "huge shape": file({"a": {**one, "shape": [1 << 40, 1 << 40]}}, 8),
        "real shape": file({"a": {**one, "shape": [2.5]}}, 8),
        "many dimensions": file({"a": {**one, "shape": [1] * 99}}, 8),
        "no offsets": file({"a": {"dtype": "F32", "shape": []}}),
        "overlap": file({"a": one, "b": {**one, "data_offsets": [4, 12]}}, 12),
        "gap": file({"a": {**one, "data_offsets": [8, 16]}}, 16),
        "wrong size": file({"a": {**one, "data_offsets": [0, 4]}}, 4), "cut off": file({"a": one}, 4),
        "longer": file({"a": one}, 99), "offsets as text": file({"a": {**one, "data_offsets": "08"}}, 8),
        "surrogates": file(b'{"\\ud800": {}}'), "infinite": file({"a": {**one, "shape": [float("inf")]}}, 8)}


@pytest.mark.parametrize("what", hostile_headers())
def test_a_header_that_cannot_be_true_is_a_message(what: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(hostile_headers()[what])
    with pytest.raises(DescribeError, match=r"model\.safetensors"):
        describe(str(tmp_path))


@pytest.mark.parametrize("cut", range(4, 200, 7))
def test_a_gguf_file_that_ends_early_or_lies_is_a_message(cut: int, tmp_path: Path) -> None:
    whole = gguf(LLAMA, {"token_embd.weight": ([256, 100], 12)}, data=14_400)
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:cut])
    with pytest.raises(DescribeError, match=r"cut\.gguf"):
        describe(str(path))
    for body in (whole[:cut] + b"\xff" * 8 + whole[cut + 8:], whole[:cut] + b"\xff" * 64):
        path.write_bytes(body)
        with suppress(DescribeError):  # what is changed may be a name, or a number that a model may have
            describe(str(path))


@pytest.mark.parametrize("config", [
    b"", b"[]", b"{}", b'{"num_hidden_layers": -1}', b'{"num_hidden_layers": 1e9, "hidden_size": 1}',
    b'{"num_hidden_layers": 2, "hidden_size": "wide"}', b'{"num_hidden_layers": true, "hidden_size": 8}',
    b"{" * 5000, b"\xff\xfe", b'{"num_hidden_layers": 2, "hidden_size": 1e400}'])
def test_a_configuration_of_no_model_is_a_message(config: bytes, tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(DescribeError):
        describe(str(tmp_path))


def test_a_model_without_one_of_its_shards_is_not_described(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").rename(tmp_path / "other.safetensors")
    with pytest.raises(DescribeError, match=r"model-00001-of-00002\.safetensors is missing"):
        describe(str(tmp_path))
    (tmp_path / "other.safetensors").replace(tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(DescribeError, match=r"model-00002-of-00002\.safetensors is missing"):
        describe(str(tmp_path))


def test_a_file_that_is_no_models_is_named(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("mine")
    with pytest.raises(DescribeError, match=r"fleet\.yaml is neither a safetensors nor a GGUF file"):
        describe(str(tmp_path / "fleet.yaml"))


def test_a_source_that_is_not_there_names_what_is_possible(tmp_path: Path) -> None:
    for source, words in {str(tmp_path / "none"): "hf:OWNER/NAME@REVISION", "hf:no-owner": "hf:OWNER/NAME@REVISION",
                          "hf:a/b@../../x": "does not name", str(tmp_path): "no safetensors"}.items():
        with pytest.raises(DescribeError, match=words):
            describe(source)
