"""What is sent to the cluster: the agent's modules as a zip, and documents that the agent reads from Ray's table.

Ray unpacks the zip on the head node, and every run of this release sends the same one. A request holds a plan, and with
it env values: it is never unpacked, and the agent removes it as it reads it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable

AGENT_PACKAGE = "fleetctl_agent"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """Bytes under a name in Ray's table of packages."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """The URI for a runtime environment."""
        return f"gcs://{self.name}"


@lru_cache(maxsize=1)
def agent_package() -> Package:
    """Return the modules of `fleetctl/agent/` as the package `fleetctl_agent`; equal modules give an equal name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, module in sorted(_shipped(files("fleetctl.agent"), AGENT_PACKAGE)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, module.read_bytes(), zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return Package(f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)


def _shipped(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the modules of a folder, and of those in it, with their paths in the archive."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _shipped(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".sh")):
            yield f"{name}/{entry.name}", entry


def document(name: str, content: Mapping[str, Any]) -> Package:
    """Return a document for the agent, which reads it under that name (`agent/mailbox.py`)."""
    return Package(name, zlib.compress(json.dumps(content, ensure_ascii=False).encode()))
