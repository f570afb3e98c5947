"""What a hostile change can bring along: bare repositories as ordinary files, forged objects, huge ones."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from pathlib import Path

from git_folder import GitFolder


def write_object(objects: Path, kind: str, content: bytes, object_id: str | None = None) -> str:
    """Write a loose object, under another id than its own if one is given; return the id."""
    data = f"{kind} {len(content)}\0".encode() + content
    found = object_id or hashlib.sha1(data).hexdigest()
    return _put(objects, found, zlib.compress(data))


def write_huge_object(objects: Path, kind: str, start: bytes) -> str:
    """Write a loose object that says to be 1.5 GB long and has only this start; return its id."""
    data = f"{kind} {1500 << 20}\0".encode() + start
    return _put(objects, hashlib.sha1(data).hexdigest(), zlib.compress(data))


def _put(objects: Path, object_id: str, packed: bytes) -> str:
    path = objects / object_id[:2] / object_id[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(packed)
    return object_id


def forge(repository: GitFolder, name: str, content: bytes, objects: Path | None = None) -> str:
    """Replace the content of an object, such as `HEAD:fleets/prod.yaml`, under the same id; return the id."""
    object_id = repository.git("rev-parse", name)
    kind = repository.git("cat-file", "-t", object_id)
    return write_object(objects or repository.folder / ".git/objects", kind, content, object_id)


def embed(repository: GitFolder, folder: str, base: str, forged: dict[str, bytes], config: str = "") -> None:
    """Write a bare repository as ordinary files to `folder`: the history of `base` with forged files, which are named
    from the top. Its branch main, and origin/main, are the base.
    """
    inside = repository.folder / folder
    for line in repository.git("rev-list", "--objects", base).splitlines():
        object_id, _, path = line.partition(" ")
        kind = repository.git("cat-file", "-t", object_id)
        raw = _raw(repository, kind, object_id)
        write_object(inside / "objects", kind, forged.get(path, raw) if kind == "blob" else raw, object_id)
    for ref in ("heads/main", "remotes/origin/main"):
        (inside / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (inside / "refs" / ref).write_text(f"{base}\n")
    (inside / "HEAD").write_text("ref: refs/heads/main\n")
    (inside / "config").write_text(config or "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")


def _raw(repository: GitFolder, kind: str, object_id: str) -> bytes:
    return subprocess.run(["git", "-C", str(repository.folder), "cat-file", kind, object_id], env=repository.environ,
                          check=True, capture_output=True).stdout
