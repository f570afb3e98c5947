"""Git objects and packs written byte by byte, so that they may lie: git itself would refuse to make most of them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = "100644", "100755", "120000", "40000", "160000"
WHO = "Ann <ann@example.com> 1700000000 +0000"
_BLOCK = 1 << 20
_TYPES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}

Row = tuple[str, bytes, str]
"""Mode, name and id: an entry of a tree."""


@dataclass(frozen=True)
class Entry:
    """A file of a commit: its bytes, or the id of an object that already exists."""

    mode: str
    data: bytes = b""
    id: str = ""


@dataclass
class Store:
    """The loose objects below a folder named `objects`; `format` = sha1 or sha256."""

    folder: Path
    format: str = "sha1"
    hidden: dict[str, list[Row]] = field(default_factory=dict)
    """More entries of a folder, in front of its own: names that no file system has, or that are there twice."""

    def digest(self, data: bytes) -> str:
        """Return the hash of some bytes, as git names objects."""
        return hashlib.new(self.format, data).hexdigest()

    def put(self, kind: str, data: bytes) -> str:
        """Write an object and return its id."""
        whole = b"%s %d\0" % (kind.encode(), len(data)) + data
        name = self.digest(whole)
        self.write(name, zlib.compress(whole, 1))
        return name

    def lie(self, name: str, kind: str, data: bytes, size: int | None = None) -> None:
        """Write an object under the id of another one; `size` = what its header says."""
        header = b"%s %d\0" % (kind.encode(), len(data) if size is None else size)
        self.write(name, zlib.compress(header + data, 1))

    def write(self, name: str, raw: bytes) -> None:
        """Write the bytes of the file of a loose object."""
        file = self.folder / name[:2] / name[2:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(raw)

    def zeros(self, kind: str, size: int) -> str:
        """Write an object of zeros, which takes a thousandth of its size, and return its id."""
        name, raw = _zeros(self.format, kind, size)
        self.write(name, raw)
        return name

    def tree(self, rows: Sequence[Row]) -> str:
        """Write a tree with these entries in this order, whatever they are."""
        return self.put("tree", b"".join(
            mode.encode() + b" " + name + b"\0" + bytes.fromhex(one) for mode, name, one in rows))

    def folders(self, files: Mapping[str, Entry], below: str = "") -> str:
        """Write the trees of files by path, and return the id of the top."""
        rows: list[Row] = list(self.hidden.get(below.rstrip("/"), ()))
        inner: dict[str, dict[str, Entry]] = {}
        for path, entry in files.items():
            name, slash, rest = path.partition("/")
            if slash:
                inner.setdefault(name, {})[rest] = entry
            else:
                rows.append((entry.mode, name.encode(), entry.id or self.put("blob", entry.data)))
        rows += [(FOLDER, name.encode(), self.folders(inside, f"{below}{name}/")) for name, inside in inner.items()]
        return self.tree(sorted(rows, key=lambda row: row[1] + (b"/" if row[0] == FOLDER else b"")))

    def commit(self, tree: str, *parents: str, message: bytes = b"change\n") -> str:
        """Write a commit."""
        lines = [f"tree {tree}", *(f"parent {one}" for one in parents), f"author {WHO}", f"committer {WHO}", "", ""]
        return self.put("commit", "\n".join(lines).encode() + message)

    def read(self, name: str) -> tuple[str, bytes]:
        """Return type and content of a loose object."""
        head, _, data = zlib.decompress((self.folder / name[:2] / name[2:]).read_bytes()).partition(b"\0")
        return head.split()[0].decode(), data


@cache
def _zeros(hash_name: str, kind: str, size: int) -> tuple[str, bytes]:
    head = b"%s %d\0" % (kind.encode(), size)
    digest, sums = hashlib.new(hash_name, head), zlib.adler32(head)
    whole, rest = divmod(size, _BLOCK)
    packer = zlib.compressobj(1)
    raw = [packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)]
    block = bytes(_BLOCK)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # after a full flush it may be repeated
    raw.append(packed * whole)
    for _ in range(whole):
        digest.update(block)
        sums = zlib.adler32(block, sums)
    digest.update(bytes(rest))
    sums = zlib.adler32(bytes(rest), sums)
    raw.append(packer.compress(bytes(rest)) + packer.flush()[:-4] + struct.pack(">I", sums))
    return digest.hexdigest(), b"".join(raw)


@dataclass
class Pack:
    """A pack and its index, both of which may lie."""

    format: str = "sha1"
    bodies: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, name: str, kind: str, data: bytes) -> None:
        """Add an object under an id, which need not be its own."""
        self.bodies.append(_head(_TYPES[kind], len(data)) + zlib.compress(data, 1))
        self.names.append(name)

    def add_delta(self, name: str, base: str, base_size: int, repeats: int) -> int:
        """Add a blob that is its base, `repeats` times over; return its size. `base_size` is below 64 KiB."""
        size = base_size * repeats
        copy = b"\xb0" + struct.pack("<H", base_size)
        delta = _varint(base_size) + _varint(size) + copy * repeats
        self.bodies.append(_head(7, len(delta)) + bytes.fromhex(base) + zlib.compress(delta, 1))
        self.names.append(name)
        return size

    def save(self, objects: Path) -> None:
        """Write pack and index below a folder named `objects`."""
        offsets, at = list[int](), 12
        for body in self.bodies:
            offsets.append(at)
            at += len(body)
        data = b"PACK" + struct.pack(">II", 2, len(self.bodies)) + b"".join(self.bodies)
        checksum = hashlib.new(self.format, data).digest()
        rows = sorted(zip(map(bytes.fromhex, self.names), offsets, self.bodies, strict=True))
        counts = [sum(name[0] <= first for name, _, _ in rows) for first in range(256)]
        index = b"\xfftOc" + struct.pack(">I256I", 2, *counts) + b"".join(name for name, _, _ in rows)
        index += b"".join(struct.pack(">I", zlib.crc32(body)) for _, _, body in rows)
        index += b"".join(struct.pack(">I", offset) for _, offset, _ in rows) + checksum
        index += hashlib.new(self.format, index).digest()
        folder = objects / "pack"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"pack-{checksum.hex()}.pack").write_bytes(data + checksum)
        (folder / f"pack-{checksum.hex()}.idx").write_bytes(index)


def _head(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80]) + _varint(size) if size else bytes([first])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
