"""A growing, cut or poisoned cache is never offered and never used, whoever changed it and wherever."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from caches_world import ENGINE, SECRET, Fleet, Running, eventually
from test_keys import KEY

from fleetctl.agent.caches import door, folder, snapshot
from fleetctl.agent.caches.offers import read_offers, told
from fleetctl.agent.caches.snapshot import MANIFEST, CacheError, Growing, fill, scan, take
from fleetctl.agent.weights.index import File, Index


def snapshot_of(running: Running) -> Path:
    """The folder of what a member offers, in the store of its node."""
    return running.root / running.offered().artifact / "files"


def test_a_growing_cache_is_offered_only_once_it_is_quiet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock moves by two thirds of QUIET_S after each file, and only once the file has been seen."""
    first, now, scanned, scan = fleet.start(0, "a"), [100.0], list[int](), door.scan

    def counted(files: str) -> Any:
        found = scan(files)
        scanned.append(len(found))
        return found

    def until_seen() -> None:
        before = len(scanned)
        eventually(lambda: len(scanned) > before + 2)  # the last one began after the file was there, and was judged
        assert first.caches.offers() == [], "nothing is offered while it is being written"
        now[0] += door.QUIET_S * 2 / 3

    monkeypatch.setattr(door, "scan", counted)
    with monkeypatch.context() as patched:
        patched.setattr(door, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time))
        first.watch()
        compiled = first.compile(files=12, after_each=until_seen)
        now[0] += door.QUIET_S
        first.offered()
    assert fleet.start(1, "b").files() == compiled


def test_a_file_that_is_open_for_writing_is_waited_for(fleet: Fleet) -> None:
    first = fleet.start(0, "a")
    path, lock = first.folders[0] / "half.so", first.folders[0] / "some.lock"
    held = subprocess.Popen([sys.executable, "-c", (
        "import sys\nlock = open(sys.argv[2], 'w')\nhalf = open(sys.argv[1], 'wb')\nhalf.write(b'half')\nhalf.flush()\n"
        "sys.stdin.readline()\nhalf.write(b' whole')\nhalf.close()\nsys.stdin.readline()"), str(path), str(lock)],
        stdin=subprocess.PIPE)
    assert held.stdin is not None
    try:
        eventually(lambda: path.exists() and path.stat().st_size)
        first.watch(lambda: [held.pid])
        time.sleep(1.0)
        assert first.caches.offers() == []
        held.stdin.write(b"\n")
        held.stdin.flush()
        first.offered()  # the lock is still open: it is empty
    finally:
        held.communicate(b"\n", timeout=300)
    assert fleet.start(1, "b").files()["VLLM_CACHE_ROOT/half.so"] == b"half whole"


def test_what_changes_later_is_indexed_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "QUIET_S", 0.1)
    first = fleet.start(0, "a").watch()
    first.compile()
    former = first.offered()
    later = first.compile("other code", files=5)
    eventually(lambda: first.offered().artifact != former.artifact)
    assert fleet.start(1, "b").files() == later
    another = first.compile("third", files=6)
    eventually(lambda: first.offered().bytes > sum(map(len, another.values())))
    eventually(lambda: not (first.root / former.artifact / "files").exists())


@pytest.mark.parametrize("at", range(4))
def test_a_poisoned_snapshot_at_its_source_is_not_used(fleet: Fleet, at: int) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    files = sorted(path for path in snapshot_of(first).rglob("*") if path.is_file())
    assert len(files) == 4
    content = files[at].read_bytes()
    files[at].chmod(0o644)
    files[at].write_bytes(b"X" + content[1:])
    second = fleet.start(1, "b")
    assert second.files() == {}
    assert second.caches.got is not None
    assert second.caches.got.source == ""
    assert second.caches.got.trouble
    assert second.caches.variables, "the engine compiles into its own folder"


@pytest.mark.parametrize("how", ["changed", "cut", "longer", "missing", "link"])
def test_a_snapshot_that_was_changed_on_the_own_disk_is_fetched_again(fleet: Fleet, how: str) -> None:
    first = fleet.start(0, "a").watch()
    compiled = first.compile()
    first.offered()
    second = fleet.start(1, "b")
    path = next(snapshot_of(first).parents[1].parent.glob("b/*/files/VLLM_CACHE_ROOT/*/*.so"))
    second.end()
    fleet.running.remove(second)
    content = path.read_bytes()
    path.chmod(0o644)
    if how in ("changed", "cut", "longer"):
        path.write_bytes({"changed": b"X" + content[1:], "cut": content[:-1], "longer": content + b"X"}[how])
    else:
        path.unlink()
        if how == "link":
            outside = fleet.tmp_path / "outside.so"
            outside.write_bytes(content)
            path.symlink_to(outside)
    again = fleet.start(1, "b")
    assert again.files() == compiled
    assert again.caches.got is not None
    assert again.caches.got.source == "peer"
    assert any("those on this node are not used" in line for line in again.log)
    assert not any(path.is_symlink() for one in again.folders for path in one.rglob("*"))


def test_a_forged_record_of_a_snapshot_is_not_read(fleet: Fleet) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    first.offered()
    first.end()
    fleet.running.remove(first)
    record = first.folders[0].parent.parent / "snapshot.json"
    text = record.read_text()
    for forged in (text.replace('"files":', '"files": 1, "x":'), text[:-5], "", "[]", '{"artifact": 1}', "\xff"):
        record.write_text(forged, encoding="latin-1")
        again = fleet.start(0, "a")
        assert again.files() == {}
        again.end()
        fleet.running.remove(again)


def test_a_key_beside_the_files_is_for_people_alone(fleet: Fleet) -> None:
    first = fleet.start(0, "a").watch()
    compiled = first.compile()
    first.offered()
    (first.folders[0].parent.parent / "key.json").write_text("{}")
    assert fleet.start(1, "b").files() == compiled


@pytest.mark.parametrize("what", ["link", "link out", "pipe", "socket", "bad name"])
def test_what_cannot_be_in_a_snapshot_keeps_it_from_being_offered(fleet: Fleet, what: str) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    path = first.folders[0] / ("new\nline" if what == "bad name" else "odd")
    if what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(path.parent)  # a socket's path may not be long
            listening.bind("odd")
    elif what == "bad name":
        path.write_text("x")
    else:
        path.symlink_to("0" if what == "link" else "/etc/passwd")
    eventually(lambda: any("not offered" in line for line in first.log))
    assert first.caches.offers() == []
    assert fleet.start(1, "b").files() == {}


def test_a_folder_that_changes_while_it_is_copied_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made" / "files"
    for name in KEY.caches:
        (made / name).mkdir(parents=True)
        (made / name / "a.so").write_bytes(b"code")
    states = scan(str(made))
    copied, changed = snapshot._copied, made / "VLLM_CACHE_ROOT" / "a.so"

    def grows(*given: object) -> object:
        found = copied(*given)  # type: ignore[arg-type]
        (made / "TRITON_CACHE_DIR" / "b.so").write_bytes(b"new")
        return found

    monkeypatch.setattr(snapshot, "_copied", grows)
    with pytest.raises(Growing):
        take(str(tmp_path / "root"), str(made), KEY, states, SECRET)
    monkeypatch.setattr(snapshot, "_copied", copied)
    changed.write_bytes(b"core")
    with pytest.raises(Growing):
        take(str(tmp_path / "root"), str(made), KEY, states, SECRET)
    changed.unlink()
    with pytest.raises(Growing):
        take(str(tmp_path / "root"), str(made), KEY, states, SECRET)
    changed.symlink_to("/etc/passwd")
    with pytest.raises((Growing, CacheError)):
        take(str(tmp_path / "root"), str(made), KEY, states, SECRET)
    assert not list((tmp_path / "root").glob("*/files.json")), "nothing is in the store"


def test_weights_are_no_cache(tmp_path: Path) -> None:
    from fleetctl.agent.weights.index import write_index
    from fleetctl.agent.weights.store import Entry

    made = tmp_path / "made" / "files"
    (made / "VLLM_CACHE_ROOT").mkdir(parents=True)
    (made / "VLLM_CACHE_ROOT" / "a.so").write_bytes(b"code")
    entry = take(str(tmp_path / "root"), str(made), KEY, scan(str(made)), SECRET)
    files = Path(entry.folder)
    assert (files / MANIFEST).exists()
    index = entry.index()
    assert index is not None
    other = Entry(str(tmp_path / "root"), write_index(str(made)), None)
    Path(other.folder + ".part/VLLM_CACHE_ROOT").mkdir(parents=True)
    Path(other.folder + ".part/VLLM_CACHE_ROOT/a.so").write_bytes(b"code")
    other.complete(index._replace(files=tuple(file for file in index.files if file.path != MANIFEST)))
    with pytest.raises(CacheError, match="no manifest"):
        fill(str(made), other, KEY, 1e18)


MANIFEST_LIES = {
    "beyond any clock": lambda told: {**told, "files": {path: [10**30, 0o644] for path in told["files"]}},
    "a time that is no number": lambda told: {**told, "files": {path: [[], 1] for path in told["files"]}},
    "no mode": lambda told: {**told, "files": {path: [1] for path in told["files"]}},
    "a file above": lambda told: {**told, "files": {**told["files"], "../x": [1, 1]}},
    "of another key": lambda told: {**told, "key": {**told["key"], "driver": "1"}},
    "not even a mapping": lambda _: [],
    "too long": lambda told: {**told, "more": "x" * 2_000},
}


@pytest.mark.parametrize("lie", MANIFEST_LIES)
def test_a_manifest_that_lies_is_refused_and_its_snapshot_is_not_kept(
    fleet: Fleet, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_MANIFEST", 1_900)
    first = fleet.start(0, "a").watch()
    first.compile()
    good = snapshot_of(first)
    made = fleet.tmp_path / "lying" / "files"
    shutil.copytree(good, made)
    told = json.loads((made / MANIFEST).read_text())
    (made / MANIFEST).write_text(json.dumps(MANIFEST_LIES[lie](told)))
    index = Index(tuple(sorted(hashed_file(made, path) for path in made.rglob("*") if path.is_file())))
    root = str(first.root)
    entry = snapshot._stored(root, str(made), index, SECRET)
    first.caches._serve(entry)
    second = fleet.start(1, "b")
    assert second.files() == {}
    assert second.caches.variables, "the engine compiles into its own folder"
    assert second.caches.got is not None
    assert second.caches.got.trouble
    assert not list(second.root.glob(f"{entry.artifact}/files/*")), "nobody else finds it on this node"
    entry.release()


def hashed_file(folder: Path, path: Path) -> File:
    return snapshot._file(str(path.relative_to(folder)), [path.read_bytes()])


def test_a_snapshot_of_more_files_than_any_has_is_not_fetched(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fleet.start(0, "a").watch()
    first.compile(files=6)
    offer = first.offered()
    monkeypatch.setattr(snapshot, "MOST_FILES", 5)
    second = fleet.start(1, "b")
    assert second.files() == {}
    assert second.caches.got is not None
    assert "more than 5 files" in (second.caches.got.trouble or "")
    assert not list(second.root.glob(f"{offer.artifact}/files*/**/*.so")), "no file was asked for"


@pytest.mark.parametrize("what", ["folders", "files"])
def test_a_folder_with_a_million_entries_is_given_up_after_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(snapshot, "MOST_FILES", 20)
    monkeypatch.setattr(snapshot, "MOST_FOLDERS", 20)
    (tmp_path / "A").mkdir()
    for number in range(100):
        path = tmp_path / "A" / str(number)
        path.mkdir() if what == "folders" else path.write_text("x")
    seen = 0
    entries = snapshot._entries

    def counted(*given: str) -> object:
        nonlocal seen
        for row in entries(*given):
            seen += 1
            yield row

    monkeypatch.setattr(snapshot, "_entries", counted)
    with pytest.raises(CacheError, match=f"more than 20 {what}"):
        scan(str(tmp_path))
    assert seen < 60


@pytest.mark.parametrize("fails", [True, False])
def test_to_look_at_a_large_folder_takes_little_of_a_core_also_if_it_can_never_be_offered(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    looks = 0

    def slow(folder: str) -> dict[str, object]:
        nonlocal looks
        looks += 1
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        if fails:
            raise CacheError("it has more than 50000 files, or more than 16 GiB")
        return {"A/x": looks}

    first = fleet.start(0, "a")
    monkeypatch.setattr(door, "scan", slow)
    begun = time.monotonic()
    first.watch()
    eventually(lambda: looks > 2)
    assert time.monotonic() - begun > 1.9, "a second between two looks of 0.02 s"


def test_limits_hold(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_FILES", 2)
    first = fleet.start(0, "a").watch()
    first.compile()
    eventually(lambda: any("more than 2 files" in line for line in first.log))
    assert first.caches.offers() == []


def test_a_source_that_sends_too_much_or_hangs_is_given_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    first.offered()
    monkeypatch.setattr(door._Limited, "left", 100)
    second = fleet.start(1, "b")
    assert second.files() == {}
    monkeypatch.setattr(door._Limited, "left", 1 << 30)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        offer = first.offered()._replace(port=silent.getsockname()[1])
        monkeypatch.setattr(door, "offers_for", lambda *_: [("m/0", offer)])
        begun = time.monotonic()
        third = fleet.start(2, "c", time_s=12.0)
        assert third.files() == {}
        assert time.monotonic() - begun < 12.0, "a third of what is left of the start, and a second"
        assert third.caches.got is not None
        assert third.caches.got.trouble


def test_what_an_actor_says_is_checked(fleet: Fleet) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    good = first.offered()
    assert read_offers(told([good])) == [good]
    wrong = [good._replace(artifact="../x"), good._replace(port=0), good._replace(port=70_000),
             good._replace(bytes=-1), good._replace(bytes=1 << 60), good._replace(files=10**9)]
    assert read_offers(told(wrong)) == []
    for answer in ("x", [1], [{"key": 1}], [None]):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            read_offers(answer)


def test_two_members_of_a_node_have_a_folder_each(fleet: Fleet) -> None:
    first, second = fleet.start(0, "a"), fleet.start(1, "a")
    assert first.folders[0].parents[1].name == "0"
    assert second.folders[0].parents[1].name == "1"
    first.compile()
    assert second.files() == {}
    compiled = second.watch().compile("by the second")
    second.offered()
    fleet.start(2, "b")
    assert fleet.start(3, "b").files() == compiled, "the second one of a node gets what the second of another made"


def test_a_folder_is_not_given_away_while_processes_of_its_engine_run(tmp_path: Path) -> None:
    first = folder.take_folder(str(tmp_path), "0123456789abcdef")
    held = subprocess.Popen(["sleep", "100"], env={"VLLM_CACHE_ROOT": f"{first.files}/VLLM_CACHE_ROOT"})
    try:
        first.release()
        assert folder.take_folder(str(tmp_path), "0123456789abcdef", linger_s=0.3).path.endswith("/1")
    finally:
        held.kill()
        held.wait()
    assert folder.take_folder(str(tmp_path), "0123456789abcdef").path.endswith("/0")


def test_a_full_or_unwritable_disk_is_no_reason_not_to_start(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (fleet.tmp_path / "a").mkdir()
    (fleet.tmp_path / "a" / "caches").write_text("a file")
    first = fleet.start(0, "a")
    assert first.caches.variables == {}
    assert "the engine starts without them" in first.log[0]
    second = fleet.start(1, "b").watch()
    second.compile()
    monkeypatch.setattr(snapshot, "_require_room", lambda *_: (_ for _ in ()).throw(CacheError("no room")))
    eventually(lambda: any("no room" in line for line in second.log))
    assert second.caches.offers() == []


def test_an_engine_that_is_ended_offers_nothing(fleet: Fleet) -> None:
    first = fleet.start(0, "a").watch()
    first.compile()
    first.offered()
    first.caches.close()
    assert first.caches.offers() == []
    assert fleet.start(1, "b", ENGINE).files() == {}


def test_a_disk_that_hangs_does_not_hold_up_a_start(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LATE_S", 0.1)
    over = threading.Event()
    taken = door.take_folder

    def hangs(*given: str) -> folder.OwnFolder:
        over.wait(60)
        return taken(*given)

    monkeypatch.setattr(door, "take_folder", hangs)
    begun = time.monotonic()
    first = fleet.start(0, "a", time_s=0.6).watch()
    assert time.monotonic() - begun < 10
    assert (first.caches.variables, first.caches.offers()) == ({}, [])
    assert first.caches.got is not None
    assert first.caches.got.trouble == "they were not there in time"
    over.set()
    time.sleep(0.3)
    assert (first.caches.variables, first.caches.offers()) == ({}, [])
