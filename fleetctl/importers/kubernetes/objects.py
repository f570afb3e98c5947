"""The metadata of Kubernetes objects: name, namespace, and the fields that only the API server writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.importers.reading import Reading

_SERVER_WRITES = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def object_name(reading: Reading) -> tuple[str, str]:
    """Return the namespace and the name of an object, '' if it has none; does not count as reading."""
    return str(reading.peek("metadata", "namespace") or ""), str(reading.peek("metadata", "name") or "")


def model_keys(readings: Sequence[Reading]) -> list[str]:
    """Return a model key for each object: its name, with the namespace in front if several namespaces have it."""
    names = [object_name(reading) for reading in readings]
    namespaces = Counter(name for _, name in set(names))
    return [f"{namespace or 'default'}/{name}" if namespaces[name] > 1 else name for namespace, name in names]


def read_metadata(reading: Reading, key: str | None = None) -> None:
    """Record the identity of an object as read, and report the rest of its metadata; `key` = the key of its model."""
    reading.skip("apiVersion", "kind", "status")
    metadata = reading.child("metadata")
    metadata.skip("name", *_SERVER_WRITES)
    namespace, name = object_name(reading)
    if key is not None and key != name:
        metadata.note("namespace", f"several namespaces have the name {name}, so the model key is {key}", "changed")
    elif namespace not in ("", "default"):
        metadata.note("namespace", f"the namespace {namespace} is not kept: a fleet only has model keys", "lost")
    metadata.skip("namespace")
    metadata.child("annotations").skip(_LAST_APPLIED)
    for what in ("labels", "annotations"):
        metadata.child(what).lose_rest(f"{what} are not kept")
