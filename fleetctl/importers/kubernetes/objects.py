"""What every Kubernetes object has: a name, perhaps a namespace, and what only the API server writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.importers.reading import Reading

_SERVER_WRITES = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def object_name(reading: Reading) -> tuple[str, str]:
    """Return the namespace and the name of an object, '' where it has none; does not count as reading."""
    return str(reading.peek("metadata", "namespace") or ""), str(reading.peek("metadata", "name") or "")


def model_keys(readings: Sequence[Reading]) -> list[str]:
    """Return a model key for each object: its name, with the namespace before it where the name occurs in several."""
    names = [object_name(reading) for reading in readings]
    spaces = Counter(name for _, name in set(names))
    return [f"{space or 'default'}/{name}" if spaces[name] > 1 else name for space, name in names]


def read_metadata(reading: Reading, key: str | None = None) -> None:
    """Take what identifies an object as read, and report what else its metadata says; `key` is its model's."""
    reading.skip("apiVersion", "kind", "status")
    metadata = reading.child("metadata")
    metadata.skip("name", *_SERVER_WRITES)
    namespace, name = object_name(reading)
    if key is not None and key != name:
        metadata.note("namespace", f"the name {name} is in several namespaces: the model key is {key}", "changed")
    elif namespace not in ("", "default"):
        metadata.note("namespace", f"the namespace {namespace} is not kept: a fleet has model keys alone", "lost")
    metadata.skip("namespace")
    metadata.child("annotations").skip(_LAST_APPLIED)
    for what in ("labels", "annotations"):
        metadata.child(what).lose_rest(f"{what} are not kept")
