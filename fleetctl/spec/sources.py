"""Where fleet files come from: files, folders of *.yaml and *.yml, standard input. Reads bytes, knows no YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.documents.canonical import sha256_hex
from fleetctl.spec.problems import Problem

MAX_FILE_BYTES = 8 << 20
STDIN_NAME = "<stdin>"


@dataclass(frozen=True, slots=True)
class SourceBytes:
    """The bytes of one fleet file; `file` is its name as the user gave it."""

    file: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes as they were read."""
        return sha256_hex(self.data)


def read_sources(sources: Sequence[str], stdin: Callable[[], bytes] | None) -> tuple[list[SourceBytes], list[Problem]]:
    """Read every source in argument order, folders sorted by name; what cannot be read becomes a problem."""
    read: list[SourceBytes] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for file, found in _files(sources, problems):
        identity = STDIN_NAME if found is None else str(found.resolve())
        if identity in seen:
            problems.append(_problem("FL003", file, _twice(file, seen[identity])))
            continue
        seen[identity] = file
        try:
            data = _read_stdin(stdin) if found is None else _read_file(found)
        except OSError as error:
            problems.append(_problem("FL001", file, f"cannot be read: {error.strerror or error}"))
            continue
        if len(data) > MAX_FILE_BYTES:
            problems.append(_problem("FL004", file, f"larger than {MAX_FILE_BYTES >> 20} MiB",
                                     allowed="split the fleet into several files"))
            continue
        read.append(SourceBytes(file, data))
    return read, problems


def _files(sources: Sequence[str], problems: list[Problem]) -> Iterator[tuple[str, Path | None]]:
    for source in sources:
        path = Path(source)
        if source == "-":
            yield STDIN_NAME, None
        elif path.is_dir():
            yield from _folder(source, path, problems)
        elif not path.exists():
            problems.append(_problem("FL001", source, "no such file or folder"))
        else:
            yield source, path


def _folder(source: str, folder: Path, problems: list[Problem]) -> Iterator[tuple[str, Path]]:
    try:
        found = sorted(entry for entry in folder.iterdir()
                       if entry.suffix in (".yaml", ".yml") and not entry.name.startswith(".") and entry.is_file())
    except OSError as error:
        problems.append(_problem("FL001", source, f"cannot be read: {error.strerror or error}"))
        return
    if not found:
        problems.append(_problem("FL002", source, "no *.yaml or *.yml file in this folder"))
    for entry in found:
        yield str(entry), entry


def _read_file(path: Path) -> bytes:
    # one byte beyond the limit tells "too large" from "just fits" without reading the rest
    with path.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def _read_stdin(stdin: Callable[[], bytes] | None) -> bytes:
    if stdin is None:
        raise OSError("standard input is not available here")
    return stdin()


def _twice(file: str, first: str) -> str:
    return "given twice" if file == first else f"the same file as {first}, which is given already"


def _problem(code: str, file: str, message: str, allowed: str | None = None) -> Problem:
    return Problem(code, "error", message, file, 1, 1, allowed=allowed)
