"""The index names an artifact; a malformed index, or one with files outside its folder, is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_pieces import PIECE

from fleetctl.agent.weights.index import NAME, WeightsError, name_of, read_index, write_index


def test_an_index_has_files_sizes_and_hashes_and_always_the_same_name(origin: Path) -> None:
    data = (origin / NAME).read_bytes()
    index = read_index(data, name_of(data))
    assert [file.path for file in index.files] == [
        "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "model.safetensors.index.json", "tokenizer/vocab.txt"]
    assert index.size == sum(path.stat().st_size for path in origin.rglob("*") if path.is_file() and path.name != NAME)
    assert all(len(file.chunks) == -(-file.size // PIECE) for file in index.files)
    assert write_index(str(origin)) == name_of(data) == name_of(index.encoded())


def test_a_link_is_followed_only_within_the_folder(origin: Path, tmp_path: Path) -> None:
    (origin / "again.json").symlink_to("config.json")
    write_index(str(origin))
    (tmp_path / "outside").write_text("x")
    (origin / "out.json").symlink_to(tmp_path / "outside")
    with pytest.raises(WeightsError, match=r"out\.json: not a regular file, or a link that leaves the folder"):
        write_index(str(origin))


ROW = {"path": "a", "size": 1, "sha256": "0" * 64, "chunks": ["0" * 64]}


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../../b", "a//b", "./a", "", "a\0b", "a\nb", "a\\b",
                                  NAME, 5])
def test_a_path_that_leaves_the_folder_is_refused(path: Any) -> None:
    with pytest.raises(WeightsError):
        read_index(json.dumps({"version": 1, "files": [{**ROW, "path": path}]}).encode())


@pytest.mark.parametrize("document", [
    [], {"version": 2, "files": []}, {"version": 1}, {"version": 1, "files": [{**ROW, "size": -1}]},
    {"version": 1, "files": [{**ROW, "size": True}]}, {"version": 1, "files": [{**ROW, "chunks": []}]},
    {"version": 1, "files": [{**ROW, "chunks": ["x"]}]}, {"version": 1, "files": [{**ROW, "sha256": "A" * 64}]},
    {"version": 1, "files": [ROW, ROW]}, {"version": 1, "files": [ROW, {**ROW, "path": "a/b"}]},
])
def test_a_malformed_index_is_refused(document: Any) -> None:
    with pytest.raises(WeightsError):
        read_index(json.dumps(document).encode())


def test_an_index_with_another_hash_is_refused() -> None:
    with pytest.raises(WeightsError, match="hash"):
        read_index(b"{}", "0" * 64)
