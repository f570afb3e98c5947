"""A node whose weights are changed in every way, and what it notes."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from small_pieces import SECRET

from fleetctl.agent.messages import Member
from fleetctl.agent.model_files import ModelFiles
from fleetctl.agent.weights.check import Verified, state_of
from fleetctl.agent.wire import parse

FILE = "model-00001-of-00002.safetensors"
FILES = {"files": "model-00001-*"}
INJECTED = {"FLEETCTL_RANK": "0", "FLEETCTL_GROUP_SIZE": "4", "FLEETCTL_MODEL": "m", "FLEETCTL_REPLICA_ID": "0"}
Change = Callable[[Path], None]


def member_with(artifact: str, origin: Path, **more: Any) -> Member:
    """A member that needs weights."""
    weights = {"artifact": artifact, "from": [{"path": str(origin)}], "view": None, **more}
    return parse(Member, {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": "a", "node": "a",
                          "weights": weights})


@contextlib.contextmanager
def as_it_was(path: Path) -> Iterator[None]:
    """Put the mtime back after a change, and the mode."""
    before = path.stat()
    path.chmod(0o644)
    yield
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def poisoned(data: bytes) -> bytes:
    return data[:-8] + bytes(byte ^ 0xFF for byte in data[-8:])


def eight_bytes(path: Path) -> None:
    data = poisoned(path.read_bytes())
    with as_it_was(path), path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(data[-8:])


def by_rename(path: Path) -> None:
    before, new = path.stat(), path.with_name("new")
    new.write_bytes(poisoned(path.read_bytes()))
    new.chmod(before.st_mode)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(path)


def through_a_hard_link(path: Path) -> None:
    link = path.parents[3] / "link"
    link.hardlink_to(path)
    eight_bytes(link)
    link.unlink()


def through_a_map(path: Path) -> None:
    with as_it_was(path), path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[-8:] = poisoned(mapped[:])[-8:]


def truncated_and_written_again(path: Path) -> None:
    data = poisoned(path.read_bytes())
    with as_it_was(path):
        path.write_bytes(b"")
        path.write_bytes(data)


def the_record_as_well(path: Path) -> None:
    """The record of the entry becomes newer than the file, as if it had been verified afterwards."""
    eight_bytes(path)
    os.utime(path.parent.with_suffix(".json"))


def the_folder(path: Path) -> None:
    shutil.copytree(path.parent, path.parents[1] / "copy")
    shutil.rmtree(path.parent)
    (path.parents[1] / "copy").rename(path.parent)
    by_rename(path)


def a_link(path: Path) -> None:
    other = path.parents[3] / "other"
    path.rename(other)
    eight_bytes(other)
    path.symlink_to(other)


def a_link_to_a_folder(path: Path) -> None:
    other = path.parents[3] / "others"
    path.parent.rename(other)
    path.parent.symlink_to(other)
    eight_bytes(path)


def the_table(path: Path) -> None:
    """The table of verified files is made to know the changed file, by someone who does not know the secret."""
    eight_bytes(path)
    [table] = [*path.parents[1].glob("verified-*.json"), *path.parents[2].glob("verified-*.json")]
    content = json.loads(table.read_text())
    for row in content["files"]:
        if row[0][0] == path.stat().st_ino:
            row[0] = list(state_of(path.stat()))
    table.write_text(json.dumps(content))


KEEP_SIZE: list[Change] = [eight_bytes, by_rename, through_a_hard_link, through_a_map, truncated_and_written_again,
                           the_record_as_well, the_folder, the_table]
BEFORE_A_START: list[Change] = [a_link, a_link_to_a_folder]


class NodeUnderTest:
    """A node whose members fetch from an origin; `notes` = where its notes lie."""

    def __init__(self, root: Path, origin: Path, artifact: str) -> None:
        self.root, self.origin, self.artifact, self.notes = root / "cache", origin, artifact, root / "notes"
        self.lines: list[str] = []
        self.started: list[ModelFiles] = []
        self.notes.mkdir()

    def start(self, view: dict[str, Any] | None = None, **more: Any) -> ModelFiles:
        member = member_with(self.artifact, self.origin, view=view, **more)
        self.started.append(ModelFiles(member, INJECTED, time.monotonic() + 60, self.lines.append))
        return self.started[-1]

    def note(self) -> dict[str, Any]:
        [found] = self.notes.glob("fleetctl-wrong-*")
        return json.loads(found.read_text())


def source_of(weights: ModelFiles) -> dict[str, Any]:
    weights.serve("127.0.0.1")
    assert weights.served
    return {"replica": "m/0", "nodeId": "a", "address": f"127.0.0.1:{weights.served.port}",
            "view": weights.served.view, "whole": weights.served.whole}


def rot(weights: ModelFiles) -> None:
    """Change a file so that nothing shows it: neither its mtime nor its ctime, as a bad medium does."""
    path = Path(weights.folder, FILE)
    eight_bytes(path)
    file = next(file for file in weights._fetched.held.files if file.path == FILE)
    Verified(weights._root, weights._wanted.artifact, SECRET).add_read(state_of(path.stat()), file)
