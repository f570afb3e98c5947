"""Properties of every comparison: a fleet equals itself, one change is one difference, no secret is shown."""

from __future__ import annotations

import copy
import io
import random
import re
from typing import get_args

from diff_strategies import CHANGES, FLEETS, SECRETS, Json, as_yaml, changed
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_cases import cases
from rich.console import Console

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.difference import FleetDiff, Revision
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.render.report.formats import OWN_FORMATS, ReportFormat, render_report
from fleetctl.render.report.of_diff import diff_report
from fleetctl.render.report.terminal import print_report
from fleetctl.review.compare import compare
from fleetctl.review.inputs import Side


def side(*texts: str) -> Side:
    loaded = inspect_bytes([SourceBytes(f"{number}.yaml", text.encode()) for number, text in enumerate(texts)])
    assert loaded.errors == ()
    return Side(Revision(name="side"), loaded.fleet, loaded.documents)


def diff(old: str, new: str) -> FleetDiff:
    return compare(side(old), side(new))


@settings(max_examples=cases(12))
@given(FLEETS, st.integers(0, 1000))
def test_a_fleet_equals_itself_in_any_spelling(document: Json, seed: int) -> None:
    plain, other = as_yaml(document), as_yaml(document, shuffle=random.Random(seed))
    for text in (plain, other, format_source(SourceBytes("x", other.encode())).after):
        assert diff(plain, text).differences == []


@settings(max_examples=cases(12))
@given(FLEETS, st.integers(0, 1000))
def test_the_order_of_models_and_the_split_into_files_are_not_differences(document: Json, seed: int) -> None:
    parts = []
    for number, model in enumerate(document["spec"]["models"]):
        part = {**document, "spec": {"models": [model]}}
        parts.append({**part, "spec": {**document["spec"], "models": [model]}} if number == 0 else part)
    texts = [as_yaml(part) for part in parts]
    random.Random(seed).shuffle(texts)
    assert compare(side(as_yaml(document)), side(*texts)).differences == []


@settings(max_examples=cases(12))
@given(FLEETS, st.data())
def test_one_change_is_one_difference_of_one_model_with_its_effect(document: Json, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CHANGES)))
    index = data.draw(st.integers(0, len(document["spec"]["models"]) - 1))
    model = document["spec"]["models"][index]
    assume(name != "replicas down" or model["replicas"] > 0)
    new = changed(document, index, name)
    found = diff(as_yaml(document), as_yaml(new))
    assert [(one.model, one.effect) for one in found.differences] == [(model["key"], CHANGES[name][1])]
    assert (found.exit_code, found.summary[found.differences[0].effect]) == (2, 1)


@settings(max_examples=cases(12))
@given(FLEETS, st.data())
def test_the_reverse_comparison_has_the_same_differences_reversed(document: Json, data: st.DataObject) -> None:
    new = document
    for name in data.draw(st.lists(st.sampled_from(sorted(set(CHANGES) - {"replicas down"})), min_size=1, max_size=4)):
        new = changed(new, data.draw(st.integers(0, len(document["spec"]["models"]) - 1)), name)
    there, back = diff(as_yaml(document), as_yaml(new)), diff(as_yaml(new), as_yaml(document))
    forward = {(one.model, one.path, repr(one.old), repr(one.new)) for one in there.differences}
    assert forward == {(one.model, one.path, repr(one.new), repr(one.old)) for one in back.differences}
    assert (there.before, there.after) == (back.after, back.before)


@settings(max_examples=cases(12))
@given(FLEETS, FLEETS)
def test_any_two_fleets_can_be_compared_and_every_difference_is_complete(old: Json, new: Json) -> None:
    texts = [as_yaml(old), as_yaml(new)]
    found = diff(*texts)
    assert sum(found.summary.values()) == len(found.differences)
    for one in found.differences:
        assert one.message
        assert (one.old, one.new) != (None, None)
        for place, text in ((one.old_source, texts[0]), (one.new_source, texts[1])):
            assert place is None or 0 < place.line <= len(text.splitlines())
        assert (one.old is None) == (one.kind == "added")
        assert (one.new is None) == (one.kind == "removed")
    assert len({(one.model, one.path, one.kind) for one in found.differences}) == len(found.differences)


@settings(max_examples=cases(6))
@given(FLEETS, FLEETS)
def test_no_format_shows_an_environment_value(old: Json, new: Json) -> None:
    secrets = copy.deepcopy(new)
    for model in secrets["spec"]["models"]:
        for group in model["workers"]:
            group["members"][0]["engine"].setdefault("env", {})["TOKEN"] = SECRETS[0]
    for one, other in ((old, new), (new, secrets), (secrets, old)):
        found = diff(as_yaml(one), as_yaml(other))
        for text in every_format(found):
            assert re.search(r"zs-|secret-one|secret: three", text) is None


def every_format(found: FleetDiff) -> list[str]:
    out = io.StringIO()
    print_report(diff_report(found), Console(file=out, width=120))
    report = diff_report(found)
    return [out.getvalue(), indented_json(found),
            *(render_report(report, one) for one in get_args(ReportFormat) if one not in OWN_FORMATS)]
