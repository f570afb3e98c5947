"""Capacity, what-if and the N-1 table as text: long lists cut, safe with hostile names, never too wide."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleetctl.documents.answers import (
    Capacity,
    CapacityRow,
    Change,
    Counts,
    EqualNodes,
    LostModel,
    ModelChange,
    NodeLoss,
    Room,
    VariantChange,
    VariantLoss,
    WhatIf,
)
from fleetctl.documents.plan import Blocked, Certificate, PlanInventory
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_questions import capacity_report, what_if_report
from fleetctl.render.report.terminal import print_report
from tests.render.map_worlds import EVIL

ABOUT = PlanInventory(observed_at="2026-03-04T12:00:00Z", source="a test")


def printed(report: Report, width: int = 120) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=width))
    return out.getvalue()


def room(fits: int, at_most: int | None = None, **more: object) -> Room:
    at_most = fits if at_most is None else at_most
    return Room.model_validate({"fits": fits, "atMost": at_most, "method": "slots", "code": "X", "message": "too small",
                                "status": "optimal" if fits == at_most else "feasible", **more})


def capacity(*rows: CapacityRow, fleet: str | None = "lab") -> Capacity:
    return Capacity(fleet=fleet, inventory=ABOUT, limit=100, rows=list(rows))


def counts(wanted: int, live: int, create: int, blocked: int) -> Counts:
    return Counts(wanted=wanted, live=live, create=create, blocked=blocked)


def what_if(*models: ModelChange, **more: object) -> WhatIf:
    return WhatIf.model_validate({
        "fleet": "lab", "inventory": ABOUT, "models": list(models), "before": counts(2, 2, 0, 0),
        "after": counts(2, 1, 0, 1), "exitCode": 3, "changes": [Change(op="loseNode", about="a", message="loses a")],
        "certificate": Certificate(placed=0, wanted=1, upper_bound=0, status="optimal", method="m"), **more})


def loss(*nodes: str, missing: int = 0, model: str = "m") -> NodeLoss:
    return NodeLoss(hardware="8xH100", nodes=list(nodes), models=[LostModel(
        model=model, lost=2, replaced=2 - missing, missing=missing, code="INSUFFICIENT_GPU" if missing else None)])


@pytest.mark.parametrize(("found", "sentence"), [
    (room(3), "3 more fit alongside the plan's 2 new, and no placement holds more\n"),
    (room(1, 4), "1 more fits alongside the plan's 2 new, and no placement holds more than 4\n"),
    (room(0), "no more fit alongside the plan's 2 new\n"),
    (room(100, capped=True, status="feasible", code=None, message=""),
     "100 more fit alongside the plan's 2 new, or more"),
])
def test_capacity_is_one_sentence(found: Room, sentence: str) -> None:
    row = CapacityRow(model="m", need="1 GPU", create=2, blocked=0, now=room(9), after_plan=found)
    assert f"m: {sentence}" in printed(capacity_report(capacity(row)))


def test_places_of_a_gang_are_counted_in_members() -> None:
    where = [EqualNodes(hardware="8xH100", members_each=1, nodes=["a", "b"]),
             EqualNodes(hardware="8xH100", members_each=2, nodes=["c"])]
    text = printed(capacity_report(capacity(CapacityRow(model="m", need="2 x 8 GPUs", now=room(2, where=where)))))
    assert "    1 member on each of 2 x 8xH100: a, b\n    2 members on 8xH100: c\n" in text
    text = printed(capacity_report(capacity(CapacityRow(model="m", need="8 GPUs", now=room(4, where=where)))))
    assert "    1 on each of 2 x 8xH100: a, b\n    2 on 8xH100: c\n" in text


def test_many_models_are_shown_only_as_a_table() -> None:
    rows = [CapacityRow(model=f"m{number}", need="1 GPU", now=room(1), after_plan=room(1)) for number in range(30)]
    text = printed(capacity_report(capacity(*rows)))
    assert "one more does not fit" not in text
    assert "--model MODEL shows where" in text
    assert sum(line.startswith("m") for line in text.splitlines()) == 30


def test_one_model_is_shown_with_all_its_places_and_several_with_the_first_ones() -> None:
    where = [EqualNodes(hardware=f"{number}xL4", members_each=1, nodes=[f"n{number}"]) for number in range(1, 12)]
    row = CapacityRow(shape="1", need="1 GPU", now=room(11, where=where))
    assert "n11" in printed(capacity_report(capacity(row, fleet=None)))
    text = printed(capacity_report(capacity(row, row, fleet=None)))
    assert "n11" not in text
    assert "and 5 more nodes" in text


def test_only_models_that_differ_are_listed() -> None:
    moved = ModelChange(key="moved", before=counts(2, 2, 0, 0), after=counts(2, 1, 0, 1), lost=1, missing=1)
    same = ModelChange(key="same", before=counts(1, 1, 0, 0), after=counts(1, 1, 0, 0))
    text = printed(what_if_report(what_if(moved, same)))
    assert "2 -> 1" in text
    assert "1 lost: 1 without a place" in text
    assert "\nNot listed: 1 unchanged model" in text
    assert "\nsame" not in text


def test_unplaced_replicas_have_reasons_and_long_lists_are_cut() -> None:
    blocked = [Blocked(model=f"m{number}", replicas=1, code="C", message=f"why {number}") for number in range(60)]
    text = printed(what_if_report(what_if(blocked=blocked)))
    assert "! m0: 1 replica, C" in text
    assert "why 9" in text
    assert "and 50 more (--format json lists them)" in text


def test_the_n_1_table_names_nodes_once_and_ends_with_the_count() -> None:
    each = [loss("n1", missing=1), loss(*(f"x{number}" for number in range(9))), NodeLoss(hardware="cpu", nodes=["c"])]
    text = printed(what_if_report(what_if(each_node=each, changes=[])))
    assert "x0, x1, x2, x3 and 5 more" in text
    assert "1 of m (INSUFFICIENT_GPU)" in text
    assert "1 node has no replica of this fleet" in text
    assert text.splitlines()[-1] == "1 of 11 nodes cannot be lost without leaving a replica without a place"
    assert "Today:" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_window_or_ends_in_blanks(width: int) -> None:
    long = "org/" + "m" * 60
    row = CapacityRow(model=long, need="8 GPUs of 70Gi on fleet.io/pool=h100", create=1, blocked=0, now=room(1),
                      after_plan=room(1, where=[EqualNodes(hardware="8xH100", members_each=1, nodes=["n" * 50] * 9)]))
    moved = ModelChange(key=long, before=counts(2, 2, 0, 0), after=counts(2, 1, 0, 1), lost=1, missing=1)
    texts = [printed(capacity_report(capacity(row)), width),
             printed(what_if_report(what_if(moved, each_node=[loss("n" * 50, missing=1, model=long)])), width)]
    for line in (line for text in texts for line in text.splitlines()):
        assert len(line) <= width
        assert line == line.rstrip()


def test_hostile_names_are_shown_as_text() -> None:
    row = CapacityRow(model=EVIL, need=EVIL, now=room(1, message=EVIL, method=EVIL, where=[
        EqualNodes(hardware=EVIL, members_each=1, nodes=[EVIL])]))
    moved = ModelChange(key=EVIL, before=counts(2, 2, 0, 0), after=counts(2, 1, 0, 1), lost=1, missing=1)
    answer = what_if(moved, fleet=EVIL, unmanaged_lost=[EVIL], each_node=[loss(EVIL, missing=1, model=EVIL)],
                     changes=[Change(op="scale", about=EVIL, message=EVIL)],
                     blocked=[Blocked(model=EVIL, replicas=1, code="C", message=EVIL)])
    for text in (printed(capacity_report(capacity(row, fleet=EVIL)), 200),
                 printed(what_if_report(answer), 200)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[red]x[/red]\\x1b[2J\\u202e" in text


def test_what_a_quota_prevents_is_not_called_a_lack_of_room() -> None:
    rows = [CapacityRow(model=f"m{fits}", need="1 GPU", create=0, blocked=0, now=room(5),
                        after_plan=room(fits, code="QUOTA", message="needs 1 GPU, 0 left")) for fits in (0, 2)]
    text = printed(capacity_report(capacity(*rows)))
    assert "m0: a quota allows no more after the plan\n    one more is not allowed: needs 1 GPU, 0 left (QUOTA)" in text
    assert "m2: 2 more fit after the plan, and a quota allows no more\n" in text
    assert "no placement" not in text


def test_prices_are_compared_and_shown_where_replicas_fit() -> None:
    def line(before: int, after: int, unpriced_before: int = 0, unpriced: int = 0) -> str:
        text = printed(what_if_report(what_if(price={
            "before": {"adds": 0, "total": before, "unpriced": unpriced_before},
            "after": {"adds": 0, "total": after, "unpriced": unpriced}})))
        [found] = [line for line in text.splitlines() if line.startswith("Cost")]
        return found

    assert line(60_000_000, 52_500_000) == "Cost: 52.5 an hour instead of 60: 7.5 less"
    assert line(0, 250_000, unpriced_before=2, unpriced=2) == (
        "Cost: 0.25 an hour instead of 0: 0.25 more, without 2 nodes that have no price")
    assert line(0, 250_000, unpriced=2) == (
        "Cost: 0.25 an hour, without 2 nodes that have no price; before: 0 an hour")
    assert line(0, 750_000, unpriced_before=1) == (
        "Cost: 0.75 an hour; before: 0 an hour, without 1 node that has no price"), "that is no price that rises"
    assert line(7_000_000, 7_000_000) == "Cost: 7 an hour"
    assert "Cost" not in printed(what_if_report(what_if()))
    where = [EqualNodes(hardware="4xL4", members_each=2, nodes=["a"], price=200_000),
             EqualNodes(hardware="4xL4", members_each=1, nodes=["b"])]
    text = printed(capacity_report(capacity(CapacityRow(model="m", need="1 GPU", now=room(3, where=where)))))
    assert "2 on 4xL4: a, 0.2 an hour each\n" in text
    assert "1 on 4xL4: b\n" in text


def test_a_count_that_stopped_at_the_limit_is_no_bound() -> None:
    stopped = room(100, capped=True, status="feasible", code=None, message="")
    text = printed(capacity_report(capacity(CapacityRow(model="m", need="1 GPU", now=stopped))))
    [row] = [line.split() for line in text.splitlines() if line.startswith("m ")]
    assert row == ["m", "1", "GPU", "100+", "100+", "-"]


def in_variants(key: str, *each: tuple[str, int, int], lost: int = 0, create: int = 5) -> ModelChange:
    same = counts(5, 0, create, 0)
    return ModelChange(key=key, before=same, after=same, lost=lost, variants=[
        VariantChange(name=name, before=before, after=after) for name, before, after in each])


def test_replicas_that_would_run_as_another_variant_are_said_in_a_sentence() -> None:
    text = printed(what_if_report(what_if(
        in_variants("m", ("h100", 5, 3), ("a100", 0, 2)),
        in_variants("n", ("h100", 5, 2), ("a100", 0, 2), ("l4", 0, 1)),
        in_variants("k", ("h100", 5, 2), ("h200", 1, 0), ("b200", 1, 0), ("a100", 0, 2), ("l4", 0, 1), ("l40", 0, 2)),
        in_variants("o", ("h100", 0, 0), ("a100", 3, 5), lost=2), in_variants("more", ("h100", 2, 5)),
        in_variants("same", ("h100", 5, 5)))))
    assert "  ~ m: 2 of 5 would run as a100, instead of h100\n" in text
    assert "  ~ n: 3 of 5 would run as another variant: 2 as a100 and 1 as l4, instead of h100\n" in text
    assert "another variant: 2 as a100, 1 as l4 and 2 as l40, instead of h100, h200 and b200\n" in text
    assert "  ~ o: 2 of 5 would run as a100\n" in text
    assert "~ more" not in text
    assert "Not listed: 1 unchanged model" in text


def test_the_table_of_lost_nodes_has_a_column_of_variants_only_where_some_change() -> None:
    assert "VARIANT" not in printed(what_if_report(what_if(each_node=[loss("a")])))
    [lost] = loss("b").models
    other = lost.model_copy(update={"variants": [VariantLoss(name="h100", lost=2, replaced=0),
                                                 VariantLoss(name="a100", lost=0, replaced=2)]})
    text = printed(what_if_report(what_if(each_node=[loss("b").model_copy(update={"models": [other]}), loss("a")])))
    assert "AS ANOTHER VARIANT" in text
    assert "2 of m as a100" in text
