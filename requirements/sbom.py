"""Writes the SBOM of a release beside its wheel: the pinned requirements of the client, as CycloneDX JSON.

Run by `make dist`, which sets SOURCE_DATE_EPOCH to the time of the commit. The same commit gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\\n]+?))? ?\\?$", re.MULTILINE)
FORMAT = "1.6"


def purl(name: str, version: str) -> str:
    """Return the package URL of a release on the Python Package Index."""
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"


def bill_of_materials(requirements: str, version: str, epoch_s: int) -> dict[str, Any]:
    """Return the document for the text of a requirements file, as `uv pip compile` writes it.

    The hashes of a component are those of all files that the release has on the index: pip accepts no other. A release
    for some interpreters or systems only has its environment marker as a property.
    """
    found = list(PINNED.finditer(requirements))
    ends = [*(match.start() for match in found[1:]), len(requirements)]
    components: list[dict[str, Any]] = []
    versions, users = defaultdict[str, list[str]](list), dict[str, list[str]]()
    for match, end in zip(found, ends, strict=True):
        name, text = match["name"], requirements[match.end():end]
        reference = purl(name, match["version"])
        versions[name].append(reference)
        users[reference] = re.findall(r"^    # (?:via |  )(\S+)", text, re.MULTILINE)
        marker = {"properties": [{"name": "fleetctl:environment-marker", "value": match["marker"]}]}
        components.append({
            "type": "library", "bom-ref": reference, "name": name, "version": match["version"], "purl": reference,
            "hashes": [{"alg": "SHA-256", "content": one} for one in re.findall(r"--hash=sha256:([0-9a-f]{64})", text)],
            **(marker if match["marker"] else {})})
    own = purl("fleetctl", version)
    versions["fleetctl"] = [own]
    needs: dict[str, list[str]] = {own: [], **{reference: [] for reference in users}}
    for reference, names in users.items():
        for user in (one for name in names for one in versions[name]):
            needs[user].append(reference)
    return {
        "bomFormat": "CycloneDX", "specVersion": FORMAT, "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + requirements)}",
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": own, "name": "fleetctl", "version": version, "purl": own,
                          "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": sorted(set(on))} for reference, on in needs.items()],
    }


def main() -> None:
    """Write dist/fleetctl-VERSION.cdx.json."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "fleetctl" / "version.py").read_text(encoding="utf-8"))
    assert found is not None  # noqa: S101  the file is ours
    document = bill_of_materials((ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8"), found[1],
                                 int(os.environ["SOURCE_DATE_EPOCH"]))
    (ROOT / "dist" / f"fleetctl-{found[1]}.cdx.json").write_text(json.dumps(document, indent=1) + "\n",
                                                                encoding="utf-8")


if __name__ == "__main__":
    main()
