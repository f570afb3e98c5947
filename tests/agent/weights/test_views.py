"""A view has the bytes that NumPy would slice, and two views have the same id only if they are equal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weights_world import SHARD, fetch, files_in, safetensors, tensors_in

from fleetctl.agent.weights import gather
from fleetctl.agent.weights.index import File, Index, WeightsError
from fleetctl.agent.weights.views import (
    MODEL,
    View,
    files_view,
    read_header,
    read_view,
    tensor_view,
    view_id,
    with_a_pattern_per_rank,
)


@pytest.mark.parametrize("library", [True, False], ids=["with NumPy", "without NumPy"])
def test_the_shards_of_four_ranks_are_numpys_slices(
    tmp_path: Path, origin: Path, artifact: str, library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not library:
        monkeypatch.setattr(gather, "_numpy", lambda: None)
    whole = {**tensors_in(origin / "model-00001-of-00002.safetensors"),
             **tensors_in(origin / "model-00002-of-00002.safetensors")}
    dims = {"a.rows.weight": 0, "a.columns.weight": 1, "a.bias": 0, "b.experts.weight": 2, "b.norm": 0,
            "b.columns.weight": 1}
    for rank in range(4):
        got = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}], view=SHARD, rank=rank)
        there = tensors_in(Path(got.entry.folder) / MODEL)
        assert set(there) == set(whole)
        for name, array in whole.items():
            wanted = np.split(array, 4, axis=dims[name])[rank] if name in dims else array
            assert there[name].shape == wanted.shape
            assert there[name].tobytes() == wanted.tobytes(), name
        assert set(files_in(got.entry.folder)) == {MODEL, "config.json", "tokenizer/vocab.txt"}


def test_a_view_by_tensors_has_the_matching_ones_and_one_by_files_has_whole_files(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    stage = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}], view={"tensors": r"^b\."})
    assert set(tensors_in(Path(stage.entry.folder) / MODEL)) == {
        "b.experts.weight", "b.norm", "b.scale", "b.columns.weight"}
    files = fetch(tmp_path / "other", artifact, origins=[{"path": str(origin)}], view={"files": "*-00002-*"})
    assert files_in(files.entry.folder) == {
        path: data for path, data in files_in(origin).items() if path != "model-00001-of-00002.safetensors"}
    assert not (tmp_path / "other" / artifact / "files").exists(), "only the view is fetched"


def test_every_tensor_of_a_view_is_aligned_to_its_element_size() -> None:
    data = safetensors({"odd": ("U8", np.arange(3, dtype="u1")), "wide": ("I64", np.arange(2)),
                        "half": ("BF16", np.arange(5, dtype="u2"))})
    layout = tensor_view({"x": read_header(io.BytesIO(data), len(data))}, View(tensors="."), 0, 1)
    entries = json.loads(layout.header[8:])
    assert {name: entry["data_offsets"][0] for name, entry in entries.items()} == {"wide": 0, "half": 16, "odd": 26}
    assert len(layout.header) % 8 == 0


@pytest.mark.parametrize(("view", "says"), [
    ({"files": "*.gguf"}, "no weight file"),
    ({"tensors": "nothing"}, "no tensor"),
    ({"tensors": "("}, "not a regular expression"),
    ({"shard": {"rules": [{"match": "a.other", "dim": 0}], "of": "2"}}, "the 7 rows of dim 0 are not divisible by 2"),
    ({"shard": {"rules": [{"match": "bias", "dim": 1}], "of": "4"}}, "no dim 1"),
    ({"shard": {"rules": [{"match": "bias", "dim": 0}], "of": "four"}}, "not a number"),
])
def test_a_view_that_cannot_be_made_reports_the_reason(
    tmp_path: Path, origin: Path, artifact: str, view: dict[str, Any], says: str
) -> None:
    with pytest.raises(WeightsError, match=says):
        fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}], view=view)


GOOD = {"t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}


@pytest.mark.parametrize(("entries", "says"), [
    ({"t": {**GOOD["t"], "dtype": "F99"}}, "dtype"),
    ({"t": {**GOOD["t"], "shape": [5]}}, "does not take"),
    ({"t": {**GOOD["t"], "shape": [-4]}}, "whole numbers"),
    ({"t": {**GOOD["t"], "data_offsets": [0, 8], "shape": [8]}}, "end at byte"),
    ({"t": {**GOOD["t"], "data_offsets": [1, 5]}}, "begins at byte"),
    ({**GOOD, "u": GOOD["t"]}, "begins at byte"),
    ({"t": {"shape": [4]}}, "cannot be read"),
    ([], "cannot be read"),
])
def test_a_header_that_contradicts_itself_is_refused(entries: Any, says: str) -> None:
    header = json.dumps(entries).encode()
    data = len(header).to_bytes(8, "little") + header + b"four"
    with pytest.raises(WeightsError, match=says):
        read_header(io.BytesIO(data), len(data))


@given(st.binary(max_size=200))
def test_reading_any_bytes_as_a_header_fails_only_with_a_weights_error(data: bytes) -> None:
    try:
        read_header(io.BytesIO(data), len(data))
    except WeightsError:
        return


def test_equal_views_have_one_id_and_other_views_and_artifacts_have_another() -> None:
    views: list[dict[str, Any]] = [{"files": "a*"}, {"tensors": "a"}, SHARD, {"shard": {**SHARD["shard"], "of": "2"}}]
    names = [view_id(read_view(view), rank, 4, artifact)
             for view in views for rank in (0, 1) for artifact in ("x", "y")]
    assert None not in names
    assert len(set(names)) == 12, "only shards differ by rank"
    everything: list[dict[str, Any] | None] = [
        None, {}, {"files": "*"}, {"tensors": ".*"}, {"shard": {**SHARD["shard"], "of": "1"}},
        {"shard": {"rules": [], "of": "4"}}]
    assert [view_id(read_view(view), 0, 4, "x") for view in everything] == [None] * 6


@pytest.mark.parametrize(("view", "id_"), [
    ({"files": "a*"}, "1a8a257929d8e1ef"), ({"tensors": r"^b\."}, "f0ec1497d0f7c5f6"), (SHARD, "a3523df0a5c6a62a"),
    ({"shard": {"rules": [{"match": "é"}]}}, "afbdf12e11d62f68"),
])
def test_a_view_has_the_same_id_in_every_release(view: dict[str, Any], id_: str) -> None:
    assert view_id(read_view(view), 1, 4, "x") == id_


@pytest.mark.parametrize(("pattern", "ranks"), [
    ("model-rank-{8,9,10}-*", (8, 9, 10)), ("model-rank-{1}-*", (1,)), ("model-rank-1-*", (1,)),
    ("model-rank-{1,1[01]}-part-0.*", (1, 10, 11)), ("*/model-rank-{9,12}-*", (9,)),
    ("model-{rank,tank}-{8,9}-part-{0,1}.*", (8, 9)),
])
def test_a_pattern_of_files_may_list_alternatives(pattern: str, ranks: tuple[int, ...]) -> None:
    index = Index(tuple(File(f"a/model-rank-{rank}-part-0.safetensors", 1, "0" * 64, ()) for rank in range(12)))
    assert {file.path for file in files_view(index, pattern).files} == {
        f"a/model-rank-{rank}-part-0.safetensors" for rank in ranks}


@pytest.mark.parametrize(("written", "files"), [
    ("model-rank-$(FLEETCTL_RANKS)-*", "model-rank-{$(FLEETCTL_RANKS)}-*"),
    ("model-rank-{$(FLEETCTL_RANKS)}-*", "model-rank-{$(FLEETCTL_RANKS)}-*"),
    ("{a,$(FLEETCTL_RANKS)}-$(FLEETCTL_RANKS)", "{a,$(FLEETCTL_RANKS)}-{$(FLEETCTL_RANKS)}"),
    ("$$(FLEETCTL_RANKS)-$(FLEETCTL_RANK)", "$$(FLEETCTL_RANKS)-$(FLEETCTL_RANK)"),
])
def test_ranks_in_a_pattern_of_files_are_one_pattern_each(written: str, files: str) -> None:
    assert with_a_pattern_per_rank({"files": written}) == {"files": files}
    assert with_a_pattern_per_rank({"tensors": written}) == {"tensors": written}
    assert with_a_pattern_per_rank(None) is None


def test_a_pattern_that_stands_for_endless_patterns_is_refused() -> None:
    with pytest.raises(WeightsError, match="more than 10000 patterns"):
        files_view(Index(()), "{a,b}" * 40)


def test_a_view_needs_more_than_small_files() -> None:
    with pytest.raises(WeightsError, match="no weight file"):
        files_view(Index(()), "*")
