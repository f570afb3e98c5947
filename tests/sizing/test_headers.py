"""Headers and configurations that cannot be true, or that would take much time or memory: each is a message."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from fleetctl.sizing.describe import DescribeError, describe
from fleetctl.sizing.headers import MOST_HEADER, MOST_VALUES, HeaderError, RangedFile, read_gguf, read_safetensors
from tests.sizing.test_describe import CONFIG, LLAMA, TENSORS, gguf, header_of, write_safetensors


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def start(pairs: int, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs)


def array(of: int, count: int) -> bytes:
    return struct.pack("<IQ", of, count)


ARRAY = text(b"a") + struct.pack("<I", 9)
TENSOR = {"token_embd.weight": ([256, 100], 12)}
GGUF_HEADERS = {
    "strings without end": (start(1) + ARRAY + array(8, 1 << 60), "a list of 1,152,921,504,606,846,976 values"),
    "numbers without end": (start(1) + ARRAY + array(4, 1 << 60), "ends within its header"),
    "a long string": (start(1) + text(b"a") + struct.pack("<IQ", 8, 1 << 60), "ends within its header"),
    "a long key": (start(1) + struct.pack("<Q", 1 << 63), "ends within its header"),
    "lists in lists": (start(1) + ARRAY + array(9, 1) * 9, "a value of the unknown type 9"),
    "a key twice": (start(2) + (text(b"a") + struct.pack("<IB", 0, 1)) * 2, "its header has a twice"),
    "many tensors": (start(0, 1 << 40), "would have 1,099,511,627,776 tensors"),
    "many values": (start(1 << 40), "1,099,511,627,776 values"),
    "another version": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9 of the format"),
    "no tensors": (start(0), "no general.architecture|no tensors"),
    "not a number": (gguf({**LLAMA, "llama.block_count": "x"}, TENSOR, data=14_400), "block_count is 'x', not a whole"),
    "no layers": (gguf({**LLAMA, "llama.block_count": 0}, TENSOR, data=14_400), "it has 0 layers"),
    "many layers": (gguf({**LLAMA, "llama.block_count": (1 << 32) - 1}, TENSOR, data=14_400), "4294967295 layers"),
    "an alignment of text": (gguf({**LLAMA, "general.alignment": "32"}, TENSOR, data=14_400), "its tensors to 32"),
    "no alignment": (gguf({**LLAMA, "general.alignment": 0}, TENSOR, data=14_400), "align its tensors to 0"),
    "no UTF-8": (gguf(LLAMA, TENSOR, data=14_400).replace(b"general.architecture", b"\xff" * 20), "no general.arch"),
    "two at one place": (gguf(LLAMA, {"token_embd.weight": ([256, 100], 12), "output.weight": ([256, 100], 12)},
                              data=14_400), "over another tensor|by its header"),
}


@pytest.mark.parametrize("what", GGUF_HEADERS)
def test_a_gguf_header_that_cannot_be_true_is_a_message(what: str, tmp_path: Path) -> None:
    data, says = GGUF_HEADERS[what]
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(DescribeError, match=says):
        describe(str(tmp_path / "x.gguf"))


def of(data: bytes, size: int | None = None) -> RangedFile:
    return RangedFile("x", len(data) if size is None else size, lambda begin, count: data[begin:begin + count])


def test_long_lists_and_many_lists_of_a_gguf_file_are_not_kept() -> None:
    many = b"".join(text(b"%d" % number) + struct.pack("<I", 9) + array(0, 4_000) + bytes(4_000)
                    for number in range(99))
    metadata, _ = read_gguf(of(start(101) + many + text(b"words") + struct.pack("<I", 9) + array(8, 5_000)
                               + text(b"w") * 5_000 + text(b"last") + struct.pack("<IB", 0, 7)))
    assert metadata["last"] == 7
    assert metadata["words"] is None
    kept = [value for key, value in metadata.items() if key.isdigit() and value is not None]
    assert 0 < len(kept) < 99


@pytest.mark.parametrize("inner", [b"[],", b"1,", b"1e9,", b"{},"])
def test_a_header_that_would_be_many_times_its_size_in_memory_is_refused_before_it_is_read(inner: bytes) -> None:
    body = b'{"__metadata__":[' + inner * MOST_VALUES + b"1]}"
    data = struct.pack("<Q", len(body)) + body
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError, match="more than 4,194,304 values"):
            read_safetensors(of(data))
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


def test_a_header_is_read_up_to_a_limit_whatever_the_size_of_the_file() -> None:
    with pytest.raises(HeaderError, match="its header has 67,108,865 bytes, and at most 67,108,864"):
        read_safetensors(of(struct.pack("<Q", MOST_HEADER + 1), 1 << 60))
    with pytest.raises(HeaderError, match="its header has more than 67,108,864 bytes"):
        read_gguf(of(start(1) + text(b"a") + struct.pack("<IQ", 8, MOST_HEADER), 1 << 60))


@pytest.mark.parametrize(("entry", "says"), [
    ({"shape": [float("nan")]}, "the shape of w"), ({"shape": [True]}, "the shape of w"), ({"shape": "1"}, "the shape"),
    ({"shape": None}, "NoneType"), ({"shape": {"a": 1}}, "the shape"), ({"data_offsets": [0, 4, 8]}, "unpack"),
    ({"data_offsets": [-4, 0]}, "w has bytes -4 to 0"), ({"data_offsets": [0, 1 << 2000]}, "w has bytes 0 to 1148"),
    ({"data_offsets": [0.0, 4.0]}, "the offsets of w"), ({"dtype": "X" * 90_000}, "unknown type X{100}…"),
    ({"dtype": ["F32"]}, "unhashable")])
def test_a_tensor_that_no_file_has_is_a_message_of_a_few_words(entry: dict[str, Any], says: str) -> None:
    body = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}}).encode()
    with pytest.raises(HeaderError, match=says) as raised:
        read_safetensors(of(struct.pack("<Q", len(body)) + body + bytes(4)))
    assert len(str(raised.value)) < 400


HUGE = 1 << 39
CONFIGS: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "many digits": (b'{"num_hidden_layers": 2, "hidden_size": ' + b"9" * 4000 + b"}", "hidden_size is 999"),
    "too many digits": (b'{"num_hidden_layers": ' + b"9" * 9000 + b"}", "is not JSON"),
    "no UTF-8": (b'{"a": "\xff"}', "is not JSON"), "depth": (b'{"a":' * 100_000, "is not JSON"),
    "text": ({"hidden_size": "64"}, "hidden_size is '64', not a whole number"),
    "long text": ({"hidden_size": "x" * 90_000}, "hidden_size is 'xxx"),
    "negative": ({"num_hidden_layers": -2}, "num_hidden_layers is -2, which no model has"),
    "not a number": ({"hidden_size": float("nan")}, "hidden_size is nan, not a whole number"),
    "a wide latent": ({"kv_lora_rank": HUGE}, "rank: Input should be less"),
    "a wide key": ({"kv_lora_rank": 8, "qk_rope_head_dim": HUGE}, "rope: Input should be less"),
    "a wide state": ({"model_type": "mamba", "state_size": 8, "conv_kernel": HUGE, "intermediate_size": HUGE},
                     "convolution: Input"),
    "a negative state": ({"layer_types": ["linear_attention"] * 2, "linear_num_key_heads": 1, "linear_key_head_dim": 1,
                          "linear_num_value_heads": 1, "linear_value_head_dim": 1, "linear_conv_kernel_dim": 0},
                         "convolution: Input should be greater"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_configuration_that_no_model_has_is_a_message_of_a_few_words(what: str, tmp_path: Path) -> None:
    config, says = CONFIGS[what]
    write_safetensors(tmp_path / "model.safetensors", header_of(TENSORS))
    (tmp_path / "config.json").write_bytes(
        config if isinstance(config, bytes) else json.dumps({**CONFIG, **config}).encode())
    with pytest.raises(DescribeError, match=says) as raised:
        describe(str(tmp_path))
    assert len(str(raised.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\0b", "a\n::error::b", "\ud800", "x" * 90_000, "", ["a"], None])
def test_a_name_that_is_none_is_unknown(name: object, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", header_of(TENSORS))
    (tmp_path / "config.json").write_text(json.dumps({
        **CONFIG, "architectures": [name], "quantization_config": {"quant_method": name}}))
    model = describe(str(tmp_path))
    assert (model.architecture, model.quantization) == ("unknown", "unknown")


def test_a_file_without_tensors_is_no_model(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(DescribeError, match="its files have no tensors"):
        describe(str(tmp_path))
