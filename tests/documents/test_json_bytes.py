"""The fast paths for writing and reading JSON give the same bytes, documents and messages as the plain ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.documents.canonical import canonical_json, canonical_json_of_sorted, indented_json, plan_id, sha256_hex
from fleetctl.documents.fleet import Lifecycle
from fleetctl.documents.inventory import Amounts, Inventory, Node, NodeResources
from fleetctl.documents.loading import load_document
from fleetctl.documents.plan import Hold
from fleetctl.errors import DocumentError

FRACTIONS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([
    900.0, 0.001, 0.0001, 0.00001, 1.234e-05, 1e-06, -1e-05, -0.0, 5e-324, 1e15, 1e16, 1e17, 12345678901234567.0,
])
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from([
    "1e5", ": 1e5", "0.00001", "\u2028", "\x00\x1f\x7f", 'a"\\b', "</script>", "é😀",
])


@given(FRACTIONS, TEXTS, st.integers())
def test_the_fast_writer_for_sorted_values_gives_canonical_json(number: float, text: str, whole: int) -> None:
    value = [{"a": number, "b": {"x": text, "y": [whole, text, None, True, [], {}]}}]
    assert canonical_json_of_sorted(value) == canonical_json(value)


@given(FRACTIONS, TEXTS)
def test_indented_json_equals_that_of_json_dumps(number: float, text: str) -> None:
    lifecycle = Lifecycle.model_construct(startup_timeout=number, scheduling_timeout=30, restart_max=5,
                                          restart_backoff=1)
    hold = Hold(model=text, wanted=1, live=2, surplus=1)
    for document in (lifecycle, hold):
        plain = json.dumps(document.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False)
        assert indented_json(document) == plain + "\n"


def test_the_id_of_a_plan_does_not_depend_on_parts_being_canonical_already() -> None:
    document = {"models": [{"b": 1, "a": "x"}], "actions": [{"a": 1}], "planId": "what it says itself"}
    whole = sha256_hex(canonical_json({"models": document["models"], "actions": document["actions"]}))
    assert plan_id(document) == whole
    assert plan_id({"models": document["models"]}, {"actions": canonical_json(document["actions"])}) == whole


def inventory(**changes: object) -> dict[str, object]:
    return {"formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test",
            "nodes": [{"id": "a", "name": "n", "resources": {"total": {"GPU": 8}}}], **changes}


def read(text: str) -> Inventory | str:
    try:
        return load_document(text, Inventory, where="inv.json")
    except DocumentError as error:
        return error.message


@pytest.mark.parametrize("text", [
    json.dumps(inventory()),
    json.dumps(inventory(formatVersion="1.7", later={"unknown": [1]})),
    json.dumps(inventory(formatVersion=1.0)),
    json.dumps(inventory(formatVersion="2.0")),
    json.dumps(inventory(kind="Plan")),
    json.dumps(inventory(nodes=[{"id": 5, "name": "n"}])),
    json.dumps(inventory(nodes=[{"id": "a", "name": "n", "resources": {"total": {"GPU": -1}}}])),
    json.dumps(inventory(unknown=float("nan"))),
    json.dumps(inventory(source="\ud800")),
    json.dumps({key: value for key, value in inventory().items() if key != "kind"}),
    json.dumps({key: value for key, value in inventory().items() if key != "formatVersion"}),
    json.dumps(inventory())[:-3],
    '{"a":' * 100_000,
], ids=lambda text: text[:60])
def test_a_snapshot_reads_the_same_by_the_fast_and_the_slow_path(text: str) -> None:
    # a leading line break forces the slow path
    assert str(read(text)) == str(read("\n" + text)).replace("inv.json:2:", "inv.json:1:")


def test_a_snapshot_read_by_the_fast_path_is_fully_checked() -> None:
    assert read(json.dumps(inventory())) == Inventory(
        observed_at="2026-03-04T12:00:00Z", source="a test",
        nodes=[Node(id="a", name="n", resources=NodeResources(total=Amounts(gpu=8)))],
    )
    assert read(json.dumps(inventory(nodes=[{"id": "a", "name": "n", "gpus": [{"index": 0, "share": 1.5}]}]))) == (
        "inv.json:1:171 is damaged: nodes[0].gpus[0].share: 1.5 is out of range; expected at most 1")
