"""An inventory from a file: what `fleetctl inventory --format json` wrote, or a few lines by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.loading import load_document
from fleetctl.errors import DocumentError

STDIN = "-"


def load_snapshot(path: str, *, stdin: Callable[[], bytes] | None = None) -> Inventory:
    """Return the inventory in the file, JSON or YAML; `-` is standard input, which `stdin` reads.

    Raises DocumentError when it cannot be read or is no inventory, and when two nodes share an id or a name.
    """
    where, data = ("standard input", stdin()) if path == STDIN and stdin is not None else (path, _read(path))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{where} is not UTF-8 text (byte {error.start})") from None
    inventory = load_document(text, Inventory, where=where)
    _check_nodes(inventory, where)
    return inventory


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None


def _check_nodes(inventory: Inventory, where: str) -> None:
    for what in ("id", "name"):
        seen: set[str] = set()
        for node in inventory.nodes:
            value = getattr(node, what)
            if value in seen:
                raise DocumentError(f"{where} lists two nodes with the {what} {value!r}",
                                    hint=f"each node has a {what} of its own")
            seen.add(value)
