"""Stored documents that are damaged, changed, or of another version or kind are refused with a specific message."""

from __future__ import annotations

import json

import pytest

from fleetctl.documents.canonical import plan_id
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.loading import load_document, load_plan
from fleetctl.errors import DocumentError

INVENTORY = {"formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test"}


def saved_plan(**changes) -> dict:
    plan = {
        "formatVersion": "2.0", "kind": "Plan", "toolVersion": "0.1.0", "fleet": {"name": "lab"},
        "inventory": {"observedAt": "2026-03-04T12:00:00Z", "source": "a test"}, "summary": {},
        "certificate": {"placed": 0, "wanted": 0, "upperBound": 0, "status": "optimal", "method": "none wanted"},
        "models": [], "exitCode": 0, **changes,
    }
    return {**plan, "planId": plan_id(plan)}


def load(text: str) -> Inventory:
    return load_document(text, Inventory, where="inv.json")


def refusal(text: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load(text)
    return caught.value


def test_words_that_other_readers_take_for_booleans_or_times_are_text_in_a_document_too():
    node = {"id": "n1", "name": "on", "ip": "10.0.0.1", "state": "ALIVE",
            "labels": {"since": "12:30", "day": "2026-01-02"}}
    labels = "{since: 12:30, day: 2026-01-02}"
    lines = [f"{key}: {value}" for key, value in INVENTORY.items() if key != "nodes"]
    as_yaml = "\n".join([*lines, "nodes:", f"- {{id: n1, name: on, ip: 10.0.0.1, state: ALIVE, labels: {labels}}}"])
    assert load(as_yaml).nodes == load(json.dumps({**INVENTORY, "nodes": [node]})).nodes


@pytest.mark.parametrize(("text", "why"), [
    ("a: &x 1\nb: *x", "inv.json:2:4: not JSON and not YAML: aliases are not supported"),
    ("a: !!python/name:os.system x", "inv.json:1:4: not JSON and not YAML: the tag tag:yaml.org,2002:python"),
    ("a: 1\n---\nb: 2", "inv.json:2:1: not JSON and not YAML: a second document"),
    ("? [a]\n: b", "a key that is a list or a mapping"),
    ("kind: Inventory\nnodes: []\nnodes: [1]", "inv.json:3:1: not JSON and not YAML: the key nodes comes twice"),
    ("a: [{b: 1, c: {b: 1}, b: 2}]", "inv.json:1:23: not JSON and not YAML: the key b comes twice"),
    ("a: " + "[" * 200, "inv.json:1:103: not JSON and not YAML: nested deeper than 100"),
    ("a: " + "1" * 999, "inv.json cannot be read: a number of 999 characters"),
])
def test_yaml_that_no_document_needs_is_refused_at_its_place(text: str, why: str):
    assert why in str(refusal(text))


def test_json_and_yaml_hold_the_same_document():
    as_yaml = "\n".join(f"{key}: {value}" for key, value in INVENTORY.items())
    assert load(json.dumps(INVENTORY)) == load(as_yaml) == load("\ufeff" + json.dumps(INVENTORY))


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_the_message_for_a_truncated_document_has_the_place_of_its_end(cut: int):
    text = json.dumps(INVENTORY, indent=1)[:-cut]
    error = refusal(text)
    assert error.message.startswith(f"inv.json:{text.count(chr(10)) + 1}:")
    assert "cut off" in error.hint


@pytest.mark.parametrize(("text", "words"), [
    ("", "inv.json is empty"),
    (" \n", "inv.json is empty"),
    ("[1]", "holds a list, not a document"),
    ("hello", "holds text, not a document"),
    ("7", "holds a number, not a document"),
    ("{}", " has no kind"),
    (json.dumps(saved_plan()), "is a Plan, not an Inventory"),
    (json.dumps({**INVENTORY, "formatVersion": "2.0"}), "has formatVersion 2.0, and this fleetctl reads 1.x"),
    (json.dumps({**INVENTORY, "formatVersion": 10.5}), "has formatVersion 10.5"),
    (json.dumps({**INVENTORY, "formatVersion": "new"}), "has formatVersion 'new'"),
    (json.dumps({**INVENTORY, "formatVersion": None}), "has no formatVersion"),
    (json.dumps({**INVENTORY, "observedAt": 3}), "observedAt"),
    ('{"kind": NaN}', "NaN is not allowed in a document"),
    ('{"a": ' + "9" * 5000 + "}", "cannot be read"),
    ("[" * 100_000, "nested too deeply"),
    ("a: &x [1]\nb: *x", "inv.json:2:4: not JSON and not YAML: aliases are not supported"),
    ("- " * 100_000 + "x", "inv.json:1:201: not JSON and not YAML: nested deeper than 100"),
    ("a: [1", "inv.json:2:1: not JSON and not YAML"),
    ("a: \x07", "not JSON and not YAML"),
    ("a: !!python/object:os.system x", "not JSON and not YAML"),
])
def test_text_that_is_not_an_inventory_is_refused(text: str, words: str):
    assert words in refusal(text).message


def test_the_first_few_of_many_problems_are_shown_with_the_number_of_others():
    nodes = [{"id": index} for index in range(10)]
    assert "; and 15 more" in refusal(json.dumps({**INVENTORY, "nodes": nodes})).message


def test_a_saved_plan_is_loaded():
    assert load_plan(json.dumps(saved_plan()), "p.json").fleet.name == "lab"


def test_unknown_keys_of_a_newer_minor_version_are_part_of_the_plan_id():
    newer = saved_plan(formatVersion="2.9", news=[1])
    assert load_plan(json.dumps(newer), "p.json").format_version == "2.9"
    with pytest.raises(DocumentError, match="was changed after it was written"):
        load_plan(json.dumps({**newer, "news": [2]}), "p.json")


@pytest.mark.parametrize("change", [{"exitCode": 2}, {"planId": "0" * 64}, {"planId": ""}])
def test_a_plan_that_was_changed_is_refused(change):
    with pytest.raises(DocumentError, match=r"p\.json was changed after it was written \(planId does not match\)"):
        load_plan(json.dumps({**saved_plan(), **change}), "p.json")


def test_a_masked_plan_is_refused_with_the_command_to_save_a_complete_one():
    with pytest.raises(DocumentError, match="masked") as caught:
        load_plan(json.dumps({**saved_plan(), "masked": True}), "p.json")
    assert "plan --out" in caught.value.hint


@pytest.mark.parametrize("version", ["1.0", "1.1", "3.0"])
def test_another_major_version_of_a_plan_is_refused_and_the_message_says_what_to_do(version: str):
    with pytest.raises(DocumentError) as caught:
        load_plan(json.dumps(saved_plan(formatVersion=version, reloads=[{"id": "m/0"}])), "p.json")
    assert caught.value.message == f"p.json has formatVersion {version}, and this fleetctl reads 2.x"
    assert caught.value.hint == "use the fleetctl that wrote it, or write it again with this one"


@pytest.mark.parametrize("change", [
    {"replicaId": 0}, {"op": "create"}, {"op": "reload", "replicaId": 0},
    {"op": "create", "replicaId": 0, "reload": {"actorId": "a", "runs": "s", "requests": []}},
])
def test_an_action_that_lacks_what_its_operation_needs_is_damage(change: dict[str, object]):
    action = {"id": "m/prefetch", "op": "prefetch", "model": "m", "specHash": "s", "members": [], "lifecycle": {
        "startupTimeout": 1, "schedulingTimeout": 1, "restartMax": 0, "restartBackoff": 1}}
    assert load_plan(json.dumps(saved_plan(actions=[action])), "p.json").prefetches
    with pytest.raises(DocumentError, match=r"is damaged: actions\[0\]: .*does not fit its op"):
        load_plan(json.dumps(saved_plan(actions=[{**action, **change}])), "p.json")


DEMOTE = {"id": "m/0", "op": "demote", "model": "m", "replicaId": 0}


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_a_plan_with_an_unknown_operation_needs_a_newer_fleetctl(version: str):
    newer = saved_plan(formatVersion=version, toolVersion="0.9.0", actions=[DEMOTE])
    with pytest.raises(DocumentError) as caught:
        load_plan(json.dumps(newer), "p.json")
    assert caught.value.message == (
        'p.json needs a newer fleetctl: it holds the operation "demote", which this version does not know; '
        f"it has formatVersion {version} and was made by fleetctl 0.9.0; "
        "this is fleetctl 0.1.0, which knows formatVersion 2.0")
    assert "damaged" not in caught.value.message
    assert caught.value.hint == "use the fleetctl that wrote it, or write it again with this one"
    assert caught.value.exit_code == 1


def test_an_unreadable_newer_minor_version_is_not_called_damaged():
    with pytest.raises(DocumentError) as caught:
        load_plan(json.dumps(saved_plan(formatVersion="2.3", models=3)), "p.json")
    assert caught.value.message == (
        "p.json needs a newer fleetctl: models: Input should be a valid list; it has formatVersion 2.3 "
        "and was made by fleetctl 0.1.0; this is fleetctl 0.1.0, which knows formatVersion 2.0")
    replicas = [{"model": "m", "level": "FROZEN"}]
    newer = refusal(json.dumps({**INVENTORY, "formatVersion": "1.2", "replicas": replicas})).message
    assert newer.startswith("inv.json needs a newer fleetctl: replicas[0].level: Input should be 'HOT', 'WARM' or")


@pytest.mark.parametrize("op", [3, None, {"a": 1}, ""])
def test_a_value_that_cannot_be_an_operation_is_called_damaged(op: object):
    with pytest.raises(DocumentError, match=r"p\.json:1:[0-9]+ is damaged"):
        load_plan(json.dumps(saved_plan(actions=[{**DEMOTE, "op": op}])), "p.json")


def test_an_inserted_operation_is_reported_as_a_change():
    with pytest.raises(DocumentError, match="was changed after it was written"):
        load_plan(json.dumps({**saved_plan(), "actions": [DEMOTE]}), "p.json")
