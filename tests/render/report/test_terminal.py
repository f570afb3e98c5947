"""A report on a terminal: grids and lines, narrow and wide windows, and text that cannot control it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from rich.console import Console

from fleetctl.documents.answers import NodeCache, Pruned
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.report.of_weights import pruned_report
from fleetctl.render.report.terminal import print_report
from tests.render.report.samples import hostile_texts, report

COLUMNS = (Column("sign", "", name=True), Column("key", "model", name=True), Column("create", "create", numeric=True),
           Column("why", "why", terminal="beside"), Column("note", "note", terminal="filled"))
GRID = Table("model", "Models", COLUMNS, (("+", "org/a", "2", "new", ""), ("=", "org/b", "0", "well", "")))
LINES = Table("blocked", "Blocked", (Column("model", "model"), Column("replicas", "replicas", numeric=True),
                                     Column("why", "why")),
              (("a", "1", ("first", "second")), ("b", "2", ())), line="{model}: {replicas}", signs=("!", "~"))


def printed(*tables: Table, width: int = 80, **console: Any) -> str:
    out = io.StringIO()
    print_report(Report(kind="answer", title="", conclusion="All is well", tables=tables),
                 Console(file=out, width=width, **console))
    return out.getvalue()


def test_a_wide_window_shows_every_column() -> None:
    assert printed(GRID, width=110) == ("   MODEL  CREATE  WHY\n+  org/a       2  new\n=  org/b       -  well\n\n"
                                      "All is well\n")


def test_in_a_narrow_window_beside_columns_go_below_the_name() -> None:
    assert printed(GRID).splitlines()[1:3] == ["+  org/a        2", "     new"]


def test_columns_that_do_not_fit_go_below_and_no_name_wraps() -> None:
    columns = (Column("replica", "replica", name=True), Column("nodes", "nodes", name=True, terminal="beside"),
               Column("gpus", "gpus", numeric=True), Column("address", "address", name=True, terminal="beside"),
               Column("fleet", "fleet", name=True, terminal="beside"))
    table = Table("replica", "Replicas", columns, (("org/model/0", "node-a, node-b", "2", "10.0.0.1:40000", ""),),
                  beside_from=0)
    assert printed(table, width=50).splitlines()[1].split() == [
        "org/model/0", "node-a,", "node-b", "2", "10.0.0.1:40000"]
    assert printed(table, width=40).splitlines()[:3] == [
        "REPLICA           NODES           GPUS", "org/model/0       node-a, node-b     2", "  10.0.0.1:40000"]
    assert printed(table, width=24).splitlines()[1:4] == [
        "org/model/0            2", "  node-a, node-b,", "  10.0.0.1:40000"]


def test_a_node_name_is_not_cut_by_a_long_path_beside_it() -> None:
    node = NodeCache(node_id="n", node="node-a", trouble=f"OSError: /{'x' * 150}")
    [table] = pruned_report(Pruned(nodes=[node])).tables
    assert printed(table).splitlines()[1].split()[:4] == ["node-a", "-", "-", "failed:"]


@pytest.mark.parametrize("width", range(44, 121, 4))
def test_no_name_wraps_or_is_lost_at_any_width(width: int) -> None:
    columns = (Column("replica", "replica", name=True), Column("state", "state"), Column("nodes", "nodes", name=True),
               Column("gpus", "gpus", numeric=True), Column("address", "address", name=True, terminal="beside"),
               Column("note", "note", terminal="beside"))
    row = ("org/model-1/0", "ready", "node-a, node-b", "16", "10.0.0.13:41001", "ended by the OOM killer of its node")
    text = printed(Table("replica", "Replicas", columns, (row, ("org/model-2/0", "lost", "n", "1", "", "")),
                       beside_from=0), width=width)
    assert max(map(len, text.splitlines())) <= width
    words = [row[0], "node-a", "node-b", "16", row[4], *row[5].split()]
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("width", range(36, 81, 4))
def test_numbers_that_leave_no_room_for_the_name_go_below_with_their_titles(width: int) -> None:
    words = ("ready", "starting", "restarting", "outdated", "missing")
    columns = (Column("model", "model", name=True), Column("wanted", "wanted", numeric=True),
               *(Column(word, word, numeric=True, terminal="filled") for word in words))
    row = ("openai-community/gpt2", "14", "11", "1", "", "12", "2")
    lines = printed(Table("model", "Models", columns, (row,)), width=width).splitlines()
    assert lines[0].split()[:2] == ["MODEL", "WANTED"]
    assert len(lines[1].split()[0]) >= len("openai-")
    assert [part for part in ("openai-", "community/", "gpt2") if part not in lines[1] + lines[2]] == []
    assert max(map(len, lines)) <= width
    head = [word for word in words if word.upper() in lines[0].split()]
    below = " ".join(" ".join(lines[2:]).split())
    assert [word for word in ("12 outdated", "2 missing") if word.split()[1] not in head and word not in below] == []


def test_an_address_below_a_row_does_not_wrap_when_names_do() -> None:
    columns = (Column("replica", "replica", name=True), Column("status", "status"),
               Column("nodes", "nodes", name=True, terminal="beside"), Column("gpus", "gpus", numeric=True),
               Column("age", "age", numeric=True, terminal="filled"),
               Column("address", "address", name=True, terminal="beside"))
    row = ("meta-llama/Llama-3.1-8B-Instruct/0", "starting, outdated", "new-1", "0.1", "1h00m", "10.0.0.1:20000")
    lines = printed(Table("replica", "Replicas", columns, (row,), beside_from=0), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert any("10.0.0.1:20000" in line for line in lines)


@pytest.mark.parametrize("width", range(20, 34))
def test_the_comma_between_two_names_stays_with_the_first(width: int) -> None:
    columns = (Column("replica", "replica", name=True), Column("nodes", "no", name=True))
    lines = printed(Table("replica", "Replicas", columns, (("org/model/0", "a-node-b, a-node-c"),)), width=width)
    assert [line for line in lines.splitlines() if line.strip() == ","] == []


def test_a_sign_stays_beside_a_name_that_is_wider_than_the_window() -> None:
    name = "org/" + "m" * 60
    text = printed(replace(LINES, title=f"~ {name}", rows=((name, "1", ()), ("b", "2", ()))), width=40)
    assert text.splitlines()[0] == f"~ {name[:38]}"
    assert f"\n  ! {name[:36]}\n  {name[36:]}: 1\n" in text


def test_a_note_below_a_row_goes_under_a_column_that_may_wrap() -> None:
    """The widest column must not wrap here and would cut the note below it."""
    columns = (Column("startedAt", "started"), Column("id", "id", name=True), Column("why", "why", terminal="beside"))
    text = printed(Table("run", "Runs", columns, (("2026-03-04T12:06:00Z", "0001", "ended by a person, who said so"),)))
    assert "ended by a person, who said so" in " ".join(text.split())


def test_an_empty_column_is_omitted() -> None:
    noted = replace(GRID, rows=(*GRID.rows, ("=", "org/c", "0", "", "a note")))
    assert "NOTE" not in printed(GRID, width=110)
    assert printed(noted, width=110).splitlines()[3].split() == ["=", "org/c", "-", "-", "a", "note"]


def test_a_line_has_its_sign_its_count_and_its_further_texts_below() -> None:
    assert printed(LINES) == ("Blocked\n  ! a: 1 replica\n    first\n    second\n  ~ b: 2 replicas\n\nAll is well\n")


def test_a_title_with_a_meaning_has_the_number_of_rows() -> None:
    assert printed(replace(LINES, meaning="stops nothing else")).startswith("Blocked: 2 (stops nothing else)\n")


def test_long_tables_are_cut_and_the_rest_counted() -> None:
    assert "and 1 more (--format json lists them)" in printed(replace(LINES, limit=1))
    assert "and 1 more (--format json lists them)" in printed(replace(GRID, limit=1))


def test_a_table_for_other_readers_is_not_shown() -> None:
    assert printed(replace(GRID, readers=frozenset({"program"}))) == "All is well\n"


def test_signs_are_colored_only_on_a_color_terminal() -> None:
    assert "\x1b" not in printed(GRID, LINES, force_terminal=True, color_system=None)
    assert "\x1b[31m!\x1b[0m a: 1 replica" in printed(GRID, LINES, force_terminal=True, color_system="standard")


@given(text=hostile_texts)
@pytest.mark.parametrize("width", [30, 200])
def test_no_text_can_control_the_terminal_or_break_its_line(width: int, text: str) -> None:
    out = io.StringIO()
    made = report(text, heading=(text,), notes=(text,))
    tables = tuple(replace(table, line=line, note=text) for table in made.tables for line in ("", "{name}: {why}"))
    print_report(replace(made, tables=tables), Console(file=out, width=width))
    assert all(char.isprintable() for line in out.getvalue().split("\n") for char in line)
