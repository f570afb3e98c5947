"""The case folders: the input, and beside each folder the expected fleet file and losses.

A new case is a new folder with YAML files; `python -m tests.importers.import_cases` writes its output beside it, to be
reviewed before it is committed.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.read import Imported, documents_of, import_documents
from fleetctl.importers.write import write_draft

FOLDER = Path(__file__).parent / "sources"
CASES = sorted(path for path in FOLDER.iterdir() if path.is_dir())
MOMENT = "2026-03-04T12:00:00Z"


def sources(case: Path) -> list[SourceBytes]:
    """The files of a case by their names without folder, so that the output is the same everywhere."""
    return [SourceBytes(path.name, path.read_bytes()) for path in sorted(case.glob("*.yaml"))]


def runtime_of(case: Path) -> str | None:
    """The container runtime of a case, the last part of its name."""
    return "podman" if case.name.endswith("-podman") else None


def imported(
    read: list[SourceBytes], *, forced: str | None = None, hardware: bool = True, runtime: str | None = None
) -> Imported:
    """Import files like the command; with `hardware` the declared clusters become an inventory."""
    documents, problems = documents_of(read)
    assert problems == []
    return import_documents(documents, fleet="lab", forced=forced, observed_at=MOMENT if hardware else None,
                            runtime=runtime)


def account(result: Imported) -> str:
    """The losses, one per line."""
    lines = [f"{loss.place.file}:{loss.place.line}:{loss.place.column}: {loss.kind}: {loss.path}: {loss.message}"
             for loss in result.draft.losses if loss.place is not None]
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the output of every case beside it."""
    for case in CASES:
        result = imported(sources(case), runtime=runtime_of(case))
        case.with_suffix(".fleet.yaml").write_text(write_draft(result.draft))
        case.with_suffix(".losses.txt").write_text(account(result))


if __name__ == "__main__":
    main()
