"""Weights come from disk, a peer's view, a peer's files or an origin, in this order; a bad or slow source is
dropped."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from origin_server import origin_over_http
from small_pieces import PIECE
from weights_world import SHARD, fetch, files_in, has_sent, model, serving

from fleetctl.agent.weights import fetch as fetch_module
from fleetctl.agent.weights import store
from fleetctl.agent.weights.fetch import SLICE
from fleetctl.agent.weights.index import NAME, WeightsError
from fleetctl.agent.weights.protocol import LargeReads
from fleetctl.agent.weights.sources import FetchLimits, Stream
from fleetctl.agent.weights.store import Entry, OutOfTime, cached
from fleetctl.agent.weights.views import MODEL


def test_all_files_are_fetched_from_an_origin_once_and_kept(tmp_path: Path, origin: Path, artifact: str) -> None:
    with origin_over_http(origin) as server:
        got = fetch(tmp_path / "node", artifact, origins=[{"http": server.url}])
        assert files_in(got.entry.folder) == files_in(origin)
        assert (got.source, got.name, got.size, got.reused) == ("origin", server.url, got.held.size, 0)
        sent = server.sent
        again = fetch(tmp_path / "node", artifact, origins=[{"http": server.url}])
        assert server.sent == sent
    assert (again.source, again.size, again.reused) == ("disk", 0, got.size)
    modes = {path.stat().st_mode for path in Path(got.entry.folder).rglob("*") if path.is_file()}
    assert {stat.S_IMODE(mode) for mode in modes} == {0o444}


def test_a_folder_can_be_an_origin_and_a_link_out_of_it_is_not_followed(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])
    assert (got.source, files_in(got.entry.folder)) == ("origin", files_in(origin))
    shutil.move(str(origin / "config.json"), str(tmp_path / "config.json"))
    (origin / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(WeightsError, match=r"config\.json is a link that leaves the folder"):
        fetch(tmp_path / "other", artifact, origins=[{"path": str(origin)}])


@pytest.mark.parametrize(("way", "says"), [
    ("lies", "piece 3 does not match the index"), ("truncates", "ended after|reading was interrupted"),
    ("redirects", "HTTP status 302, a redirect to http://127.0.0.1:1/elsewhere"), ("slow", "too slow: 0"),
])
def test_a_bad_origin_is_reported_and_the_next_one_continues(
    tmp_path: Path, origin: Path, artifact: str, way: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "slow":  # on a busy machine any other might be
        monkeypatch.setattr(fetch_module, "WINDOW_S", 0.2)
        monkeypatch.setattr(fetch_module, "LEAST_BYTES_S", 1e6)
    lines: list[str] = []
    with origin_over_http(origin, way) as bad, origin_over_http(origin) as good:
        got = fetch(tmp_path / "node", artifact, origins=[{"http": bad.url}, {"http": good.url}], lines=lines)
        assert files_in(got.entry.folder) == files_in(origin)
        assert [name for name, _ in got.left] == [bad.url]
    assert len(lines) == 1
    assert any(part in lines[0] for part in says.split("|")), lines
    if way in {"lies", "truncates"}:
        assert good.reads[0][1] % PIECE == 0
        assert good.reads[0][1] > 0, "the fetch continues with the missing piece"


@pytest.mark.parametrize("way", ["lies", "truncates", "redirects"])
def test_nothing_of_a_bad_origin_is_used_even_if_it_is_the_only_one(
    tmp_path: Path, origin: Path, artifact: str, way: str
) -> None:
    with origin_over_http(origin, way) as bad:
        with pytest.raises(WeightsError, match=bad.url):
            fetch(tmp_path / "node", artifact, origins=[{"http": bad.url}])
        assert Entry(str(tmp_path / "node"), artifact, None).index() is None


def test_the_only_origin_may_be_interrupted_as_long_as_each_try_makes_progress(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    lines: list[str] = []
    with origin_over_http(origin, "breaks") as server:
        got = fetch(tmp_path / "node", artifact, origins=[{"http": server.url}], lines=lines)
    assert files_in(got.entry.folder) == files_in(origin)
    assert len(lines) >= 2


def test_an_origin_gets_its_password_and_token_and_no_message_shows_them(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    with origin_over_http(origin) as server:
        url = server.url.replace("//", "//me:pass@").rstrip("/") + "?key=token"
        got = fetch(tmp_path / "node", artifact, origins=[{"http": url}])
        assert set(server.requests) == {("key=token", "Basic bWU6cGFzcw==")}
        assert got.name == server.url.rstrip("/")


def test_a_busy_peer_is_retried_for_half_of_the_time_before_the_origin(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    now = iter(range(1000))
    with serving(tmp_path / "a", whole) as (source, described):
        for number in range(4):
            source.table.begin(None, f"another-{number}")
        got = fetch(tmp_path / "b", artifact, described, origins=[{"path": str(origin)}], view=SHARD, time_s=100,
                    clock=lambda: float(next(now)))
        assert (got.source, source.sent) == ("origin", 0)
        assert got.left == [], "a busy source is not dropped"


def test_a_fetch_ends_at_its_deadline_and_a_later_one_resumes_it(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    part = tmp_path / "node" / artifact / "files.part" / "model-00001-of-00002.safetensors"
    with origin_over_http(origin, "stalls") as server:
        with pytest.raises(OutOfTime):
            fetch(tmp_path / "node", artifact, origins=[{"http": server.url}], time_s=50,
                  clock=lambda: 50 if part.exists() and part.stat().st_size > PIECE else 0)
        server.way = "well"
        got = fetch(tmp_path / "node", artifact, origins=[{"http": server.url}])
    assert got.reused == (origin / "config.json").stat().st_size + PIECE
    assert got.size == got.held.size - got.reused
    assert files_in(got.entry.folder) == files_in(origin)


def test_a_file_that_was_changed_on_the_node_is_fetched_again(tmp_path: Path, origin: Path, artifact: str) -> None:
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])
    changed = Path(got.entry.path("config.json"))
    changed.chmod(0o644)
    changed.write_text('{"layers": 3}')
    again = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])
    assert (again.size, again.reused) == (changed.stat().st_size, got.held.size - changed.stat().st_size)
    assert files_in(again.entry.folder) == files_in(origin)


def test_files_whose_index_was_not_recorded_are_linked_and_not_copied(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    got = fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])
    Path(f"{got.entry.folder}.json").unlink()  # as if the process had been killed before it recorded the index
    before = {name: Path(got.entry.path(name)).stat().st_ino for name in files_in(got.entry.folder)}
    again = fetch(tmp_path / "node", artifact, origins=[{"path": str(tmp_path / "nowhere")}, {"path": str(origin)}])
    assert (again.size, again.reused) == (0, got.held.size)
    assert {name: Path(again.entry.path(name)).stat().st_ino for name in files_in(again.entry.folder)} == before
    assert not Path(f"{again.entry.folder}.part").exists()
    assert again.entry.index() == got.held


def test_an_origin_that_is_not_http_is_named_without_its_query(tmp_path: Path, origin: Path, artifact: str) -> None:
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(1000)
                client.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/?token=se-cret"
        blank = f"http://127.0.0.1:{server.getsockname()[1]}/?token=se cret"
        got = fetch(tmp_path / "node", artifact, lines=lines,
                    origins=[{"http": url}, {"http": blank}, {"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(origin)
    assert len(lines) == 2
    assert "cret" not in " ".join(lines)


def test_the_last_read_of_a_file_does_not_wait_for_more_bytes_than_the_next_response_has() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x")
        body = LargeReads(Stream(len, FetchLimits(), 3 * SLICE + SLICE // 2), ours)
        marks = []
        while body.left:
            body.readinto(memoryview(bytearray(SLICE)))
            marks.append(ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
    assert marks[0] > 1
    assert marks[-1] == 1


def test_a_fetch_that_does_not_fit_on_the_disk_does_not_start(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HEADROOM", 1 << 60)
    with pytest.raises(WeightsError, match="to spare"):
        fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}])


def test_complete_weights_are_used_even_if_the_disk_has_become_read_only(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "node"
    for view in (None, SHARD):
        fetch(root, artifact, origins=[{"path": str(origin)}], view=view)
    opened, os_open = open, os.open

    def refusing(path: Any, mode: Any, *more: Any) -> Any:
        writes = mode & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(mode, int) else "r" not in mode
        if writes and str(path).startswith(str(root)):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return (os_open if isinstance(mode, int) else opened)(path, mode, *more)

    monkeypatch.setattr(store.os, "open", refusing)
    monkeypatch.setattr(store, "open", refusing, raising=False)
    for view in (None, SHARD):
        got = fetch(root, artifact, origins=[], view=view)
        assert (got.source, got.size, got.reused) == ("disk", 0, got.held.size)
    assert [one.used for one in cached(str(root))] == [True]
    (root / artifact / "files.json").unlink()
    with pytest.raises(WeightsError, match=r"this node's disk: .*Read-only"):
        fetch(root, artifact, origins=[{"path": str(origin)}])


@pytest.mark.parametrize(("code", "blamed"), [
    (errno.EMFILE, r"may open only \d+ files: raise `ulimit -n` where `ray start` runs"),
    (errno.ENFILE, "fs.file-max"), (errno.ENOSPC, "this node's disk: .*No space"),
])
def test_a_limit_on_open_files_is_not_blamed_on_the_disk(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch, code: int, blamed: str
) -> None:
    def refusing(*_: Any, **__: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store.os, "open", refusing)
    with pytest.raises(WeightsError, match=blamed):
        fetch(tmp_path / "cache", artifact, origins=[{"path": str(origin)}])


def test_one_process_of_a_node_fetches_and_the_other_waits_until_its_deadline(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    entry = Entry(str(tmp_path / "node"), artifact, None)
    Path(entry.folder).parent.mkdir(parents=True)
    with Path(entry.folder + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutOfTime, match="another process"):
            fetch(tmp_path / "node", artifact, origins=[{"path": str(origin)}], time_s=0.3)


def test_origins_that_this_node_cannot_read_are_reported(tmp_path: Path, origin: Path, artifact: str) -> None:
    lines: list[str] = []
    got = fetch(tmp_path / "node", artifact, lines=lines, origins=[
        {"hf": "org/name@main"}, {"torrent": "x"}, {"path": str(tmp_path / "nowhere")}, {"path": str(origin)}])
    assert [name for name, _ in got.left] == ["hf org/name@main", "torrent x", str(tmp_path / "nowhere")]
    assert "this node's Python has no huggingface_hub" in lines[0]


@pytest.mark.parametrize("origin_of", [{"hf": "org/name@main"}, {"s3": "org/name@main/"}])
def test_reading_from_a_librarys_origin_is_resumed_and_its_errors_are_one_line(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch, origin_of: dict[str, str]
) -> None:
    class FileSystem:
        def open(self, path: str, mode: str, block_size: int) -> Any:
            root, _, name = path.partition("@main/")
            if root != "org/name" or not (origin / name).exists():
                raise LookupError(f"404\n\nno {path}\n")
            return (origin / name).open(mode)

    libraries = {"huggingface_hub": SimpleNamespace(HfFileSystem=FileSystem),
                 "fsspec": SimpleNamespace(filesystem={"s3": FileSystem()}.get)}
    for name, library in libraries.items():
        monkeypatch.setitem(sys.modules, name, library)
    begun = tmp_path / "node" / artifact / "files.part" / "model-00001-of-00002.safetensors"
    begun.parent.mkdir(parents=True)
    begun.write_bytes((origin / begun.name).read_bytes()[:PIECE + 5])
    got = fetch(tmp_path / "node", artifact, origins=[origin_of])
    assert files_in(got.entry.folder) == files_in(origin)
    assert (got.source, got.reused, got.size) == ("origin", PIECE, got.held.size - PIECE)
    (origin / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json: LookupError: 404 no org/name@main/config\.json$"):
        fetch(tmp_path / "other", artifact, origins=[origin_of])


def test_the_index_of_another_artifact_is_refused(tmp_path: Path, origin: Path, artifact: str) -> None:
    other = model(tmp_path / "another", seed=1)
    with pytest.raises(WeightsError, match="has the hash"):
        fetch(tmp_path / "node", artifact, origins=[{"path": str(tmp_path / "another")}])
    assert other != artifact
    assert (origin / NAME).exists()


def test_a_second_replica_reads_nothing_from_the_origin(tmp_path: Path, origin: Path, artifact: str) -> None:
    with origin_over_http(origin) as server:
        origins = [{"http": server.url}]
        first = fetch(tmp_path / "a", artifact, origins=origins)
        with serving(tmp_path / "a", first) as (source, described):
            sent = server.sent
            second = fetch(tmp_path / "b", artifact, described, origins=origins)
            assert server.sent == sent
            assert has_sent(source, first.held.size)
        assert (second.source, second.name) == ("peer", f"{described['replica']} at {described['address']}")
        assert files_in(second.entry.folder) == files_in(origin)


def test_four_ranks_fetch_their_shards_from_one_source_and_the_model_is_sent_once(
    tmp_path: Path, artifact: str, origin: Path
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "a", whole) as (source, described):
        shards = [fetch(tmp_path / f"rank-{rank}", artifact, described, view=SHARD, rank=rank) for rank in range(4)]
        assert source.made == 4
        weights = sum(file.size for file in whole.artifact.files if file.path.endswith(".safetensors"))
        small = 4 * (whole.artifact.size - weights)
        assert source.sent - small <= 1.02 * weights
    for rank, shard in enumerate(shards):
        mine = fetch(tmp_path / "a", artifact, view=SHARD, rank=rank)
        assert (mine.source, files_in(mine.entry.folder)) == ("disk", files_in(shard.entry.folder))
        assert shard.whole is None
    with serving(tmp_path / "rank-2", shards[2]) as (source, described):
        assert described["view"]
        next_one = fetch(tmp_path / "next", artifact, described, view=SHARD, rank=2)
        assert (source.made, next_one.source) == (0, "peer")
        with pytest.raises(WeightsError):
            fetch(tmp_path / "other-rank", artifact, described, view=SHARD, rank=1)


def test_if_a_source_does_not_make_a_view_its_files_are_fetched_and_the_view_is_made_locally(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    lines: list[str] = []
    with serving(tmp_path / "a", whole, budget=0) as (source, described):
        got = fetch(tmp_path / "b", artifact, described, view=SHARD, rank=1, lines=lines)
        assert has_sent(source, whole.held.size)
        assert source.made == 0
    assert (got.source, got.size) == ("peer", whole.held.size)
    assert got.whole is not None
    assert "noRoom" in lines[0]
    assert (Path(got.entry.folder) / MODEL).stat().st_size < whole.held.size / 2


def test_a_file_changed_at_the_source_is_not_used(tmp_path: Path, origin: Path, artifact: str) -> None:
    whole = fetch(tmp_path / "a", artifact, origins=[{"path": str(origin)}])
    name = "model-00001-of-00002.safetensors"
    Path(whole.entry.path(name)).chmod(0o644)
    with Path(whole.entry.path(name)).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff" if (origin / name).read_bytes()[-1] != 0xFF else b"\0")
    lines: list[str] = []
    with serving(tmp_path / "a", whole) as (_, described):
        got = fetch(tmp_path / "b", artifact, described, view=SHARD, lines=lines, origins=[{"path": str(origin)}])
    assert "does not match the index" in lines[0]
    assert "has changed on the disk since it was verified" in lines[1]
    assert got.left[0][0].startswith(described["replica"])
    good = fetch(tmp_path / "c", artifact, view=SHARD, origins=[{"path": str(origin)}])
    assert files_in(got.entry.folder) == files_in(good.entry.folder)
