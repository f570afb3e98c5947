"""A comment: totals first, never too long, and it lists what it omits."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.render.report.markdown import BUDGET, length, render_markdown
from fleetctl.render.report.model import Column, Table, Total
from tests.render.report import gfm
from tests.render.report.samples import hostile_texts, report

LEAST_BUDGET = 8_000
COLUMNS = (Column("name", "name", name=True), Column("why", "why"))


def table(title: str, rows: int, **more: Any) -> Table:
    cells = tuple((f"{title}-{number}", "why it is so ") for number in range(rows))
    return Table(title.lower(), title, COLUMNS, cells, **more)


def titles(markdown: str) -> list[str]:
    return re.findall(r"^(?:### |<details><summary>)([A-Za-z]+)", markdown, re.MULTILINE)


def test_totals_come_first_and_once() -> None:
    lines = render_markdown(report()).splitlines()
    assert lines[0] == "<!-- fleetctl:plan:x -->"
    assert lines[2:5] == ["## Plan for fleet x", "", "**All of x is well**"]
    assert lines[6:9] == ["| wanted | blocked |", "| --: | --: |", "| 2 | 1 |"]
    assert sum("wanted" in line for line in lines) == 1


def test_a_zero_of_a_quiet_total_is_omitted() -> None:
    totals = (Total("wanted", "wanted", 0), Total("hold", "held", 0, quiet=True), Total("lost", "lost", 3, quiet=True))
    assert gfm.tables(render_markdown(report(totals=totals)))[0] == [["wanted", "lost"], ["0", "3"]]


def test_tables_keep_their_order_and_folded_ones_are_folds() -> None:
    markdown = render_markdown(report(tables=(table("Policy", 1), table("Models", 2), table("Places", 3, folded=True))))
    assert titles(markdown) == ["Policy", "Models", "Places", "Facts"]
    assert "<details><summary>Places (3)</summary>" in markdown
    assert [len(rows) - 1 for rows in gfm.tables(markdown)] == [1, 1, 2, 3, 1]


def test_counted_rows_are_only_a_number() -> None:
    markdown = render_markdown(report(tables=(table("models with nothing to do", 2_000, counted=True),)))
    assert "\n2000 models with nothing to do.\n" in markdown
    assert "Left out" not in markdown
    assert len(markdown) < 1_000


def test_a_table_without_rows_shows_its_note() -> None:
    markdown = render_markdown(report(tables=(table("Change", 0, note="This change alone: nothing."),)))
    assert "### Change\n\nThis change alone: nothing.\n\n" in markdown


def test_details_are_omitted_before_rows_and_the_end_lists_the_omissions() -> None:
    markdown = render_markdown(report(tables=(table("Models", 300), table("Blocked", 50, rank=2),
                                              table("Places", 3_000, folded=True, rank=3))), budget=20_000)
    assert titles(markdown) == ["Models", "Blocked", "Places", "Facts"]
    _, models, blocked, places, _ = gfm.tables(markdown)
    assert (len(models), len(blocked)) == (301, 51)
    omitted = re.search(r"Left out to stay within 20,000 characters: Places \((\d+) rows\)\. `--format json`", markdown)
    assert omitted
    assert int(omitted[1]) + len(places) - 1 == 3_000
    assert f"\nand {omitted[1]} more\n" in markdown


def test_a_table_that_does_not_fit_at_all_is_listed_as_omitted() -> None:
    blocked = Table("blocked", "Blocked", COLUMNS, (("a", ("why " * 100,) * 20),) * 20)
    markdown = render_markdown(report(tables=(table("Models", 200), blocked)), budget=8_000)
    assert "Blocked" not in titles(markdown)
    assert len(gfm.tables(markdown)[1]) > 120
    assert re.search(r"Left out to stay within 8,000 characters: Models \(\d+ rows\), Blocked \(20 rows\)", markdown)


def test_folds_are_omitted_by_rank() -> None:
    ranks = {"Last": 3, "First": 0, "Second": 1}
    folds = [table(title, 300, folded=True, rank=rank) for title, rank in ranks.items()]
    markdown = render_markdown(report(tables=folds), budget=32_000)
    assert re.search(r"Left out to stay within 32,000 characters: Last \(\d+ rows\)\. ", markdown)


def test_one_large_table_does_not_displace_the_next() -> None:
    markdown = render_markdown(report(tables=(table("Models", 5_000, rank=0), table("Blocked", 5_000, rank=2))))
    _, models, blocked, *_ = gfm.tables(markdown)
    assert len(models) > 300
    assert len(blocked) > 300


def test_a_small_table_is_complete_beside_a_large_one() -> None:
    markdown = render_markdown(report(tables=(table("Models", 5_000), table("Changes", 2_000), table("Blocked", 400))))
    _, models, changes, blocked, _ = gfm.tables(markdown)
    assert len(blocked) == 401
    assert len(models) > len(changes) > 500


def test_a_few_hundred_tables_still_fit() -> None:
    tables = tuple(table("Rows", 1) for _ in range(900))
    assert length(render_markdown(report(tables=tables))) <= BUDGET


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    rows = tuple(("\N{PILE OF POO}" * 400, "x") for _ in range(200))
    markdown = render_markdown(report(tables=(Table("row", "Rows", COLUMNS, rows),)))
    assert len(markdown) < 32_000
    assert 57_000 < length(markdown) <= BUDGET


def test_a_text_of_a_million_characters_is_cut() -> None:
    markdown = render_markdown(report("x" * 1_000_000))
    assert len(markdown) < 15_000
    assert "(999500 more characters)" in markdown


def test_most_of_the_budget_is_used() -> None:
    used = length(render_markdown(report(tables=(table("Models", 5_000),))))
    assert BUDGET - 5_000 < used <= BUDGET


@settings(max_examples=cases(20))
@given(st.lists(st.tuples(st.integers(0, 80), st.booleans(), st.integers(0, 6)), max_size=6), hostile_texts,
       st.integers(LEAST_BUDGET, BUDGET), st.sampled_from(["x", "|", "\N{PILE OF POO}", "`|", "\x00"]))
def test_no_report_is_longer_than_its_budget(
    sizes: list[tuple[int, bool, int]], text: str, budget: int, filler: str
) -> None:
    cell = text + filler * 600
    tables = tuple(Table("t", cell, COLUMNS, ((cell, (cell, cell)),) * rows, folded=folded, rank=rank, note=cell)
                   for rows, folded, rank in sizes)
    markdown = render_markdown(report(cell, tables=tables), budget)
    assert length(markdown) <= budget
    assert gfm.tables(markdown)[0] == [["wanted", "blocked"], ["2", "1"]]


def test_the_longest_possible_head_fits_the_smallest_budget() -> None:
    nine = tuple(Total(f"total{number}", "against policy", 10**6) for number in range(9))
    assert length(render_markdown(report("|`" * 5_000, totals=nine), LEAST_BUDGET)) <= LEAST_BUDGET
