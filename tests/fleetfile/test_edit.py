"""A replica count is edited in place: only its digits change, or the edit is refused with the place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.edit import Edit, edit_fleet
from fleetctl.fleetfile.load import inspect_fleet

HEAD = """\
# the head
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
"""
WORKERS = "    workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [serve]}}]}]\n"


def edited(text: str, folder: Path, **wanted: int) -> str:
    file = folder / "fleet.yaml"
    file.write_bytes(text.encode())
    edits = edit_fleet([str(file)], inspect_fleet([str(file)]), wanted)
    return edits[0].after if edits else text


def test_only_the_number_of_replicas_changes(tmp_path: Path) -> None:
    second = f"  - key: b\n    replicas: 2\n{WORKERS}# end"
    text = f"{HEAD}  models:\n  - key: a\n    replicas:   2   # why two\n{WORKERS}{second}"
    assert edited(text, tmp_path, a=12) == text.replace("  2   #", "  12   #")
    assert edited(text, tmp_path, b=1) == text.replace(second, second.replace("replicas: 2", "replicas: 1"))
    assert edited(text, tmp_path, a=3, b=40).count("replicas:   3   # why two") == 1
    assert edited(text, tmp_path, a=2) == text


def test_a_number_of_replicas_that_the_variants_do_not_allow_is_refused_with_theirs(tmp_path: Path) -> None:
    one = "    - {name: a, max: 2, workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [x]}}]}]}\n"
    variants = one + one.replace("name: a,", "name: b,").replace("gpus: 1", "gpus: 2")
    text = f"{HEAD}  models:\n  - key: m\n    replicas: 3\n    variants: # preferred first\n{variants}"
    assert edited(text, tmp_path, m=4) == text.replace("replicas: 3", "replicas: 4")
    with pytest.raises(FleetctlError, match="replicas is 5, but the variants allow only 4 together") as caught:
        edited(text, tmp_path, m=5)
    assert "a larger max" in str(caught.value.hint)


OVER = "apiVersion: fleetctl/v1\nkind: Fleet\nextends: base.yaml\nmetadata: {name: lab}\n"


def over(base: str, text: str, folder: Path) -> str:
    """Edit a file that extends another."""
    (folder / "base.yaml").write_text(base)
    return edited(text, folder, a=5)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("model", ["  - key: a", '  - key: "a"  # its name', "  - priority: 2\n    key: a"])
def test_a_count_from_a_base_is_overridden_in_the_given_file(tmp_path: Path, newline: str, model: str) -> None:
    base = f"{HEAD}  models:\n  - key: a\n    replicas: 2\n{WORKERS}"
    text = f"{OVER}spec:\n  models:\n{model}\n# end\n".replace("\n", newline)
    assert over(base, text, tmp_path) == text.replace(f"{newline}# end", f"{newline}    replicas: 5{newline}# end")
    flow = f"{OVER}spec: {{models: [{{key: a}}]}}"
    assert over(base, flow, tmp_path) == flow.replace("{key: a", "{replicas: 5, key: a")
    of_json = json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "extends": "base.yaml",
                          "metadata": {"name": "lab"}, "spec": {"models": [{"key": "a"}]}})
    assert over(base, of_json, tmp_path) == of_json.replace('{"key": "a"', '{"replicas": 5, "key": "a"')


@pytest.mark.parametrize("written", ["&n 2", "*n"])
def test_a_number_written_in_another_way_is_refused_at_its_place(tmp_path: Path, written: str) -> None:
    text = f"{HEAD}  defaults: {{priority: &n 1}}\n  models:\n  - key: a\n    replicas: {written}\n{WORKERS}"
    with pytest.raises(FleetctlError, match=r"fleet.yaml:9:15: the number of replicas is not written as a number"):
        edited(text.replace("&n 1", "1") if "&" in written else text, tmp_path, a=7)


def test_a_model_that_only_the_base_has_is_refused_with_the_name_of_the_base(tmp_path: Path) -> None:
    base = f"{HEAD}  models:\n  - key: a\n    replicas: 2\n{WORKERS}"
    with pytest.raises(FleetctlError, match=r"base.yaml:8:15: the number of replicas is in a file that -f does not"):
        over(base, OVER, tmp_path)


def test_a_merged_entry_is_not_changed_for_another_model(tmp_path: Path) -> None:
    text = f"{HEAD}  models:\n  - &one\n    key: a\n    replicas: 2\n{WORKERS}  - <<: *one\n    key: b\n"
    with pytest.raises(FleetctlError):
        edited(text, tmp_path, b=3)


SPACE = st.sampled_from(["", " ", "   "])
COMMENT = st.sampled_from(["", "  # replicas: 9", "  # ünïcode {"])


@given(data=st.data(), counts=st.lists(st.integers(0, 30), min_size=1, max_size=5), chosen=st.integers(0, 4),
       wanted=st.integers(0, 1000))
def test_in_any_layout_only_the_number_changes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, counts: list[int], chosen: int, wanted: int
) -> None:
    lines = []
    for number, count in enumerate(counts):
        lines += [f"  - key: m{number}{data.draw(COMMENT)}", *data.draw(st.lists(st.just("    # a line"), max_size=2)),
                  f"    replicas:{' '}{data.draw(SPACE)}{count}{data.draw(COMMENT)}", WORKERS.rstrip("\n")]
    text = f"{HEAD}  models:\n" + "\n".join(lines) + data.draw(st.sampled_from(["", "\n", "\n# end\n"]))
    key = f"m{chosen % len(counts)}"
    after = edited(text, tmp_path_factory.mktemp("edit"), **{key: wanted})
    before, now = text.split("\n"), after.split("\n")
    different = [(old, new) for old, new in zip(before, now, strict=True) if old != new]
    assert len(different) == int(counts[chosen % len(counts)] != wanted)
    for old, new in different:
        assert new == re.sub(r"(replicas: *)\d+", rf"\g<1>{wanted}", old, count=1)


def test_an_edit_has_the_name_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{HEAD}  models:\n  - key: a\n    replicas: 1\n{WORKERS}")
    (edit,) = edit_fleet([str(file)], inspect_fleet([str(file)]), {"a": 2})
    assert edit == Edit(str(file), file.read_text(), file.read_text().replace("replicas: 1", "replicas: 2"))


ADDED = "# a note\n- key: new\n  replicas: 1\n" + WORKERS[2:]
INDENTED = "".join(f"  {line}\n" for line in ADDED.splitlines())


@pytest.mark.parametrize(("before", "after"), [
    (f"  models:\n  - key: a\n    replicas: 1\n{WORKERS}", f"\n{INDENTED}"),
    (f"  models:\n  - key: a\n    replicas: 1\n{WORKERS}\n# end\n", f"\n{INDENTED}"),
    (f"  models:\n  - key: a\n    replicas: 1\n{WORKERS}    # of a\n  policy: {{maxNewGpus: 4}}\n",
     f"\n{INDENTED}"),
    (f"  models:\n    - key: a\n      replicas: 1\n  {WORKERS.rstrip()}", None),
])
def test_a_model_is_added_after_the_last_one(tmp_path: Path, before: str, after: str | None) -> None:
    file = tmp_path / "fleet.yaml"
    for text in (HEAD + before, (HEAD + before).replace("\n", "\r\n")):
        file.write_bytes(text.encode())
        [edit] = edit_fleet([str(file)], inspect_fleet([str(file)]), {"a": 2}, {"new": ADDED})
        changed = edit.before.replace("replicas: 1", "replicas: 2")
        newline = "\r\n" if "\r" in text else "\n"
        if after is None:
            added = "".join(f"    {line}\n" for line in ADDED.splitlines())
            assert edit.after == changed + (f"\n\n{added}").replace("\n", newline)
        else:
            assert edit.after.replace(after.replace("\n", newline), "") == changed
            assert edit.after.count("key: new") == 1


def test_a_model_that_cannot_be_added_safely_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    member = "{resources: {gpus: 1}, engine: {command: [serve]}}"
    file.write_text(f"{HEAD}  models: [{{key: a, replicas: 1, workers: [{{name: main, members: [{member}]}}]}}]\n")
    with pytest.raises(FleetctlError, match="lines of their own"):
        edit_fleet([str(file)], inspect_fleet([str(file)]), {}, {"new": ADDED})
    file.write_text(f"{HEAD}  models:\n  - key: a\n    replicas: 1\n{WORKERS}")
    with pytest.raises(FleetctlError, match="would not be valid"):
        edit_fleet([str(file)], inspect_fleet([str(file)]), {}, {"a": ADDED.replace("new", "a")})


@pytest.mark.parametrize(("defaults", "own", "sound"), [
    ("{placement: {spread: zone}}", "", False), ("{placement: {spread: zone}}", "  placement: {spread: rack}\n", True),
    ("{startupTimeout: 3m}", "", True)])
def test_defaults_of_the_file_do_not_change_an_added_model(
    tmp_path: Path, defaults: str, own: str, sound: bool
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{HEAD}  defaults: {defaults}\n  models:\n  - key: a\n    replicas: 1\n{WORKERS}")
    loaded, added = inspect_fleet([str(file)]), {"new": ADDED + own}
    if sound:
        assert len(edit_fleet([str(file)], loaded, {}, added)) == 1
        return
    with pytest.raises(FleetctlError, match=r"the file's spec\.defaults would change the spec of new"):
        edit_fleet([str(file)], loaded, {}, added)
