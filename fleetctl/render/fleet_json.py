"""A merged fleet as JSON: the document, and the file and line of each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.fleet_source import FleetSource
from fleetctl.documents.mask import masked
from fleetctl.documents.position import Path, path_text
from fleetctl.documents.rendered_fleet import RenderedFleet
from fleetctl.fleetfile.nodes import Document, Node


def render_fleet_json(document: Document, files: Sequence[FleetSource], *, show_env: bool) -> str:
    """Return the RenderedFleet of a merged document."""
    fleet: dict[str, Any] = document.value
    shown: Any = fleet if show_env else masked(fleet)
    origins = {path_text(path): document.place(path) for path in _values(document.root, ())}
    return indented_json(RenderedFleet(files=list(files), masked=shown != fleet, fleet=shown, origins=origins))


def _values(node: Node, path: Path) -> Iterator[Path]:
    """Yield the path of every value that is no collection, and of every empty one."""
    if not node.children:
        yield path
    elif isinstance(node.children, dict):
        for key, entry in node.children.items():
            yield from _values(entry[2], (*path, key))
    else:
        for index, entry in enumerate(node.children):
            yield from _values(entry[2], (*path, index))
