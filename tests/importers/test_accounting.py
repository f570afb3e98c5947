"""Nothing in the input is dropped silently: every case with an unexpected value inserted anywhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from import_cases import CASES, imported, sources
from random_cases import cases

from fleetctl.documents.position import path_text
from fleetctl.fleetfile.compose import compose_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.draft import Loss
from fleetctl.importers.write import write_draft

Path = tuple[str | int, ...]
DOCUMENTS = [document for case in CASES for source in sources(case)
             for document in yaml.safe_load_all(source.data.decode())]
STRANGE = "zzUnheardOf"
SERVERS_OWN = {"status", "managedFields", "uid", "resourceVersion", "generation", "creationTimestamp",
               "kubectl.kubernetes.io/last-applied-configuration"}
"""What the API server writes about an object, and no person: passed over in silence, as docs/import.md says."""
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.sampled_from([[], {}, [1, "two"], {"a": {"b": 1}}, "$(LWS_GROUP_SIZE)"]),
)


def containers(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from containers(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from containers(item, (*path, index))


def authored(document: Any, path: Path) -> bool:
    """Whether the author wrote the value at a path: not the server's fields, nor kubectl's List."""
    return not SERVERS_OWN & set(path) and not (document.get("kind") == "List" and path[0] != "items")


def has_meaning(path: Path) -> bool:
    """Whether a value is more than the name of an item in a list."""
    return path[-1] != "name" or path[-3:-2] not in (("containers",), ("devices",))


def everything(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, item in parts:
        yield from everything(item, (*path, part))


def at(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


def as_source(document: Any) -> SourceBytes:
    return SourceBytes("in.yaml", yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode())


def reported(losses: list[Loss], path: Path) -> bool:
    """Whether the value at a path, or a value around it, is among the losses."""
    shown = {loss.path for loss in losses}
    return any(path_text(path[:length]) in shown for length in range(len(path) + 1))


@given(st.data())
def test_an_unknown_field_anywhere_is_reported_or_kept(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    path = data.draw(st.sampled_from([path for path in containers(document) if not path or authored(document, path)]))
    value = data.draw(st.sampled_from(["text", 3, {"deep": {"er": 1}}, ["a", {"b": 2}], True]))
    at(document, path)[STRANGE] = value
    result = imported([as_source(document)])
    kept = write_draft(result.draft) + (result.inventory.model_dump_json() if result.inventory else "")
    assert reported(result.draft.losses, (*path, STRANGE)) or STRANGE in kept


@settings(max_examples=cases(150))
@given(st.data())
def test_an_unexpected_value_is_reported_or_kept(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    path = data.draw(st.sampled_from([path for path in everything(document) if path and authored(document, path)
                                      and has_meaning(path) and not isinstance(at(document, path), (dict, list))]))
    at(document, path[:-1])[path[-1]] = STRANGE
    result = imported([as_source(document)])
    kept = write_draft(result.draft) + (result.inventory.model_dump_json() if result.inventory else "")
    assert reported(result.draft.losses, path) or STRANGE in kept


@given(st.data())
def test_a_value_of_another_type_anywhere_is_handled(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    path = data.draw(st.sampled_from(list(everything(document))))
    value = data.draw(VALUES)
    if path:
        at(document, path[:-1])[path[-1]] = value
    else:
        document = value
    result = imported([as_source(document)], hardware=data.draw(st.booleans()))
    text = write_draft(result.draft)
    composed = compose_bytes(SourceBytes("out.yaml", text.encode()))
    assert composed.problems == []
    assert [model["key"] for model in composed.documents[0].value["spec"]["models"]] == [
        model.key for model in result.draft.models]
