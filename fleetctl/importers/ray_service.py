"""RayServices (ray.io/v1): KubeRay's object around a Ray Serve config, which is a text inside it."""

from __future__ import annotations

from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.kubernetes.objects import read_metadata
from fleetctl.importers.reading import Reading, Record

_CONFIG = "serveConfigV2"


def is_ray_service(reading: Reading) -> bool:
    """Return whether this is a RayService."""
    return reading.peek("kind") == "RayService" and str(reading.peek("apiVersion")).startswith("ray.io/")


def serve_config(reading: Reading) -> Reading | None:
    """Return the Serve config of a RayService, at its places in the file; None, reported, where there is none."""
    read_metadata(reading)
    reading.child("metadata").lose("name", "the models have the names of the config")
    spec = reading.child("spec")
    spec.lose("rayClusterConfig", "fleetctl starts no nodes: its cluster must be there")
    text = spec.text(_CONFIG)
    spec.lose_rest("how the service is run: not in a fleet file")
    document = _document(spec, text or "")
    if document is None:
        reading.lose(None, f"no Serve config is in spec.{_CONFIG}")
        return None
    return Reading(Record(document, within=(*spec.path, _CONFIG)), document.root)


def _document(spec: Reading, text: str) -> Document | None:
    """Return the one document of the config, or None for a text that is no config."""
    source, offset = spec.record.document.locate((*spec.path, _CONFIG))
    first, column = source.position(offset)
    lines = text.splitlines()
    written = source.text.splitlines()[first:first + len(lines)]
    if len(lines) == 1:
        text = "\n" * (first - 1) + " " * column + text
    elif len(written) == len(lines) and all(map(str.endswith, written, lines)):
        text = "\n".join(["\n" * (first - 1), *written, ""])
    composed = compose_bytes(SourceBytes(source.file, text.encode()))
    return composed.documents[0] if len(composed.documents) == 1 and not composed.problems else None
