"""`weights index`: the lines it prints for a fleet file, and the folders it refuses."""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from pathlib import Path

import pytest
from cli_result import Cli

from fleetctl.agent.weights import index as weights_index
from fleetctl.agent.weights.fetch import Fetch, Wanted
from fleetctl.cli import weights as command
from fleetctl.workflow.model_folder import MAX_NAMED

NAME = "fleetctl-weights.json"
FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: m
    replicas: 1
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine: {command: [serve, $(FLEETCTL_MODEL_DIR)]}
"""


def safetensors(size: int = 256, header: bytes | None = None) -> bytes:
    """A safetensors file with one tensor of `size` bytes."""
    entries = {"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(entries).encode() if header is None else header
    return len(text).to_bytes(8, "little") + text + bytes(size)


def gguf(shape: int = 256, kind: int = 12, *, pairs: int = 2, tensors: int = 1, name: bytes = b"blk.0") -> bytes:
    """A GGUF file with one tensor of `shape` elements; kind 12 = 144 bytes for each 256."""
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs)
    head += text(b"general.alignment") + struct.pack("<II", 4, 64)
    head += text(b"tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"one") + text(b"two")
    head += text(name) + struct.pack("<IQIQ", 1, shape, kind, 0)
    return head + bytes(-len(head) % 64) + bytes(shape * 144 // 256)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m" / "sub").mkdir(parents=True)
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "sub" / "model.safetensors").write_bytes(safetensors())
    (tmp_path / "m" / ".cache").mkdir()
    (tmp_path / "m" / ".cache" / "lock").write_text("")
    return tmp_path / "m"


def test_index_prints_lines_for_a_fleet_file_with_the_same_name_for_the_same_files(cli: Cli, folder: Path) -> None:
    done = cli("weights", "index", str(folder))
    assert done.code == 0
    assert "indexed: 2 files" in done.err
    assert [row["path"] for row in json.loads((folder / NAME).read_text())["files"]] == [
        "config.json", "sub/model.safetensors"]
    lines = "".join(f"        {line}\n" for line in done.out.splitlines())
    file = folder.parent / "fleet.yaml"
    file.write_text(FLEET.replace("        engine", f"{lines}        engine"))
    assert cli("validate", "-f", str(file)).code == 0
    assert cli("weights", "index", str(folder)).out == done.out
    (folder / "config.json").write_text("[]")
    assert cli("weights", "index", str(folder)).out != done.out


def test_a_link_to_outside_the_folder_is_refused(cli: Cli, folder: Path) -> None:
    (folder.parent / "secret").write_text("hush")
    (folder / "tokenizer.json").symlink_to(folder.parent / "secret")
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    assert "tokenizer.json" in done.err
    assert not (folder / NAME).exists()


def test_an_index_is_not_written_through_a_link_that_came_with_the_model(cli: Cli, folder: Path) -> None:
    (folder.parent / "rc").write_text("export PATH")
    (folder / NAME).symlink_to(folder.parent / "rc")
    assert cli("weights", "index", str(folder)).code == 0
    assert (folder.parent / "rc").read_text() == "export PATH"
    assert not (folder / NAME).is_symlink()


def test_a_folder_that_changes_meanwhile_gets_no_index(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_late(path: str) -> str:
        artifact = weights_index.write_index(path)
        (folder / "late.safetensors").write_bytes(safetensors())
        return artifact

    monkeypatch.setattr(command, "write_index", write_late)
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    assert "changed while it was read: late.safetensors" in done.err
    assert done.out == ""
    assert not (folder / NAME).exists()


def test_a_missing_or_empty_folder_is_an_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("weights", "index", str(tmp_path / "none")).code == 1
    assert cli("weights", "index", str(tmp_path)).code == 1


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4976698672\n"


def zipped() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("data.pkl", b"x" * 100)
    return written.getvalue()


NO_MODEL = {
    "model-1.safetensors": (LFS, "a pointer of Git LFS, not the file itself; run `git lfs pull` in its repository"),
    "tokenizer.json": (LFS, "a pointer of Git LFS"),
    "short.safetensors": (safetensors()[:-1], "bytes, but by its header"),
    "long.safetensors": (safetensors() + b"x", "bytes, but by its header"),
    "cut.safetensors": (safetensors()[:40], "its header has 98 bytes, but the file only 40"),
    "tiny.safetensors": (b"x", "not a safetensors file"),
    "absurd.safetensors": (b"\xff" * 100, "not a safetensors file: its header would have 18446744073709551615 bytes"),
    "page.safetensors": (b"<!DOCTYPE html><html>" + b" " * 100, "not a safetensors file"),
    "deep.safetensors": (safetensors(0, b"[" * 5000), "its header cannot be read"),
    "list.safetensors": (safetensors(0, b"[]"), "its header cannot be read"),
    "odd.safetensors": (safetensors(0, b'{"w": 5}'), "its header cannot be read"),
    "empty.safetensors": (b"", "empty; download it again, or remove it"),
    "merges.txt": (b"", "empty; download it again, or remove it"),
    "short.gguf": (gguf()[:-1], "bytes, but by its header"),
    "cut.gguf": (gguf()[:60], "it has 60 bytes, and ends within its header"),
    "other.gguf": (b"GGML" + bytes(100), "not a GGUF file"),
    "many.gguf": (gguf(pairs=1 << 63), "header"),
    "tensors.gguf": (gguf(tensors=1 << 63), "header"),
    "name.gguf": (gguf().replace(struct.pack("<Q", 5) + b"blk.0", struct.pack("<Q", 1 << 62) + b"blk.0"),
                  "ends within its header"),
    "shape.gguf": (gguf().replace(struct.pack("<IQIQ", 1, 256, 12, 0), struct.pack("<I", 1000) + b"\xff" * 8000),
                   "its header cannot be read"),
    "unknown.gguf": (gguf(kind=999)[:-144], "bytes, but by its header"),
    "pytorch_model.bin": (zipped()[:-10], "its end is missing"),
    "a.safetensors.part": (safetensors(), "left by an interrupted download"),
    "b.incomplete": (b"x", "left by an interrupted download"),
    "c.tmp": (b"x", "left by an interrupted download"),
    "d.gguf.aria2": (b"x", "left by an interrupted download"),
    "bad.safetensors.index.json": (b"{", "it cannot be read as JSON"),
}


def test_everything_that_is_no_complete_model_is_named_at_once_with_what_to_do(cli: Cli, folder: Path) -> None:
    for name, (content, _) in NO_MODEL.items():
        (folder / name).write_bytes(content)
    done = cli("weights", "index", str(folder))
    assert (done.code, done.out) == (1, "")
    assert f"{folder} is not a complete model: nothing was indexed" in done.err
    for name, (_, says) in NO_MODEL.items():
        [line] = [line for line in done.err.splitlines() if line.startswith(f"error: {name}: ")]
        assert says in line
    assert len(done.err.splitlines()) == len(NO_MODEL) + 1
    assert not (folder / NAME).exists()


def test_complete_files_of_every_format_are_indexed(cli: Cli, folder: Path) -> None:
    for name, content in {"m.gguf": gguf(), "n.gguf": gguf(kind=999), "pytorch_model.bin": zipped(), "__init__.py": b"",
                          "old.bin": b"\x80\x02raw", "e.safetensors": safetensors(0)}.items():
        (folder / name).write_bytes(content)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "sub/model.safetensors"}}))
    (folder / "other.index.json").write_text("[]")
    done = cli("weights", "index", str(folder))
    assert (done.code, done.err.count("error")) == (0, 0)


@pytest.mark.parametrize("listed", ["model.safetensors.index.json", "sub/model.safetensors.index.json",
                                    "pytorch_model.bin.index.json"])
def test_a_shard_that_a_list_of_shards_names_must_be_there(cli: Cli, folder: Path, listed: str) -> None:
    shards = [f"s-{number}.bin" for number in range(3)]
    beside = (folder / listed).parent
    for shard in shards[:2]:
        (beside / shard).write_bytes(b"x")
    (folder / listed).write_text(json.dumps({"weight_map": dict(zip("abcd", [*shards, "../out"], strict=True))}))
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    missing = (beside / shards[2]).relative_to(folder)
    assert f"error: {missing}: missing, but {listed} says that it belongs to the model; download it" in done.err
    assert "../out: missing" in done.err
    assert len(done.err.splitlines()) == 3


def test_a_shard_that_the_number_of_another_one_implies_must_be_there(cli: Cli, folder: Path) -> None:
    (folder / "m-00001-of-00003.gguf").write_bytes(gguf())
    (folder / "m-00003-of-00003.gguf").write_bytes(gguf())
    done = cli("weights", "index", str(folder))
    assert done.code == 1
    assert "error: m-00002-of-00003.gguf: missing, but m-00001-of-00003.gguf says" in done.err
    (folder / "m-00002-of-00003.gguf").write_bytes(gguf())
    (folder / "n-00001-of-99999.gguf").write_bytes(gguf())
    assert len(cli("weights", "index", str(folder)).err.splitlines()) == MAX_NAMED + 2
    for name in "opqr":
        (folder / f"{name}-00001-of-99999.gguf").write_bytes(gguf())
    assert f"at least {2 * 99_998 - MAX_NAMED} more files: missing" in cli("weights", "index", str(folder)).err


def test_a_snapshot_in_a_cache_of_hugging_face_is_indexed_and_can_be_an_origin(
    cli: Cli, tmp_path: Path
) -> None:
    cache = tmp_path / "models--org--m"
    snapshot = cache / "snapshots" / "abc"
    (snapshot / "sub").mkdir(parents=True)
    (cache / "blobs").mkdir()
    (cache / "blobs" / "d1").write_bytes(safetensors())
    (cache / "blobs" / "d2").write_text("{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/d1")
    (snapshot / "sub" / "config.json").symlink_to("../../../blobs/d2")
    done = cli("weights", "index", str(snapshot))
    assert done.code == 0, done.err
    artifact = weights_index.name_of((snapshot / NAME).read_bytes())
    wanted = Wanted(artifact, None, 0, 1, [{"path": str(snapshot)}], [])
    got = Fetch(str(tmp_path / "node"), wanted, time.monotonic() + 60, lambda _: None).run()
    assert Path(got.entry.path("model.safetensors")).read_bytes() == safetensors()
    (cache / "secret").write_text("hush")
    for number, target in enumerate(("../../secret", "../../blobs/../secret", "/etc/passwd", "../../blobs/gone")):
        (snapshot / f"out{number}.json").symlink_to(target)
    done = cli("weights", "index", str(snapshot))
    assert done.code == 1
    assert done.err.count("a link that leaves the folder; copy the file there") == 3
    assert "out3.json: a link to a file that does not exist" in done.err
    blobs = (cache / "blobs").rename(tmp_path / "elsewhere")
    (cache / "blobs").symlink_to(blobs)
    assert "model.safetensors: a link that leaves the folder" in cli("weights", "index", str(snapshot)).err


def test_a_link_into_blobs_outside_of_such_a_cache_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "x").write_bytes(b"x")
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "x").symlink_to("../../blobs/x")
    assert "a link that leaves the folder" in cli("weights", "index", str(tmp_path / "models" / "m")).err
