"""The package of one run: the agent's modules and the request with the plan, zipped for Ray's working directory."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

AGENT_PACKAGE = "fleetctl_agent"
REQUEST_FILE = "fleetctl_request.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """A zip as Ray keeps it: named by its content."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """The URI for a runtime environment."""
        return f"gcs://{self.name}"


def _zip(members: dict[str, bytes]) -> Package:
    """Pack in a fixed order with fixed times, so that equal content gives an equal name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(members):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, members[path], zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return Package(f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)


def job_package(request: dict[str, Any]) -> Package:
    """Return the modules of `fleetctl/agent/`, as the package `fleetctl_agent`, and the request for this run."""
    shipped = [entry for entry in files("fleetctl.agent").iterdir() if entry.name.endswith((".py", ".sh"))]
    members = {f"{AGENT_PACKAGE}/{entry.name}": entry.read_bytes() for entry in shipped}
    members[REQUEST_FILE] = json.dumps(request, sort_keys=True, ensure_ascii=False).encode()
    return _zip(members)
