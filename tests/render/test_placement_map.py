"""The placement map in a terminal: readable without color, in narrow windows, and for many nodes."""

from __future__ import annotations

import io
import re

import pytest
from map_worlds import EVIL, card, everything, map_of, node, piece
from rich.console import Console

from fleetctl.documents.answers import Beside, LegendEntry, LegendVariant, PlacementMap
from fleetctl.render.page.plan_page import map_part
from fleetctl.render.placement_map import MEANINGS, Drawing, letters, render_placement_map, render_placement_svg


class Locale(io.StringIO):
    """A stream with the encoding of a locale."""

    encoding = "ascii"


def printed(answer: PlacementMap, width: int = 100, rows: int | None = 50, **console: object) -> str:
    out = io.StringIO()
    render_placement_map(answer, Console(file=out, width=width, **console), rows=rows)
    return out.getvalue()


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_letters_show_the_holders_of_a_card_and_blocks_its_fill_level() -> None:
    text = printed(everything())
    assert row(text, "full").split() == ["full", "2xH100", "A", "█", "A", "█"]
    assert row(text, "shared").split() == ["shared", "3xH100", "AB▆", "B", "▁", "·"]
    assert "A*▅" in row(text, "many")
    assert "A org/a: 1 live" in text


def test_marks_of_new_foreign_unknown_and_dirty_cards_are_explained_below() -> None:
    text = printed(everything(), width=200)
    assert "+C" in row(text, "coming")
    assert "~D?█" in row(text, "strange")
    assert "!·" in row(text, "strange")
    assert ("+ the plan would create it; ~ not this fleet's; ? granted to an unknown holder; ! used beyond what"
            in text)


def test_unused_marks_are_not_explained() -> None:
    text = printed(map_of(node("a", card(0, piece("m")))))
    assert not [meaning for meaning in MEANINGS.values() if meaning in text]
    assert "x its node is dead" in printed(map_of(node("a", card(0), state="DEAD")))


def test_a_holder_of_another_fleet_is_gray_whatever_its_letter() -> None:
    """As in the other drawings: a color belongs to a model of this fleet.

    rich keeps the codes of a style as the first terminal of a process got them, so the colors are read as HTML.
    """
    screen = Console(file=io.StringIO(), width=100, record=True, force_terminal=True, color_system="256")
    render_placement_map(map_of(node("a", card(0, piece("m", holder="foreign")), card(1, piece("n")))), screen, rows=50)
    drawn = re.findall(r'background-color: (#\w+)">([AB])<', screen.export_html(inline_styles=True))
    assert [letter for color, letter in drawn if color == "#bcbcbc"] == ["A"]


def test_the_largest_holder_of_a_card_comes_first_in_every_drawing() -> None:
    answer = map_of(node("a", card(0, piece("m", 2_000), piece("n", 7_000))))
    assert "BA█" in row(printed(answer), "a")
    assert ">BA</text>" in render_placement_svg(answer)
    assert ">BA</b>" in map_part(answer, whole=True).body


def test_unusual_states_of_a_node_are_beside_its_hardware() -> None:
    text = printed(everything())
    assert "draining 1xH100" in row(text, "drain")
    assert "dead 2xH100" in row(text, "dead")
    assert row(text, "dead").split()[-2:] == ["x", "x"]
    assert "cordoned 1xH100" in row(text, "closed")


def test_members_without_a_card_are_listed_below_their_node() -> None:
    lines = printed(everything()).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("cpu"))
    assert lines[at + 1].strip() == "no card: +B"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_window_and_no_card_is_lost(width: int) -> None:
    answer = map_of(*(node(f"a-rather-long-node-name-{number}", *(card(index, piece("m")) for index in range(16)))
                     for number in range(2)))
    text = printed(answer, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("A █") == 32


def test_a_locale_without_blocks_gets_digits() -> None:
    out = Locale()
    render_placement_map(everything(), Console(file=out, width=100), rows=50)
    text = out.getvalue()
    assert text.isascii()
    assert row(text, "shared").split() == ["shared", "3xH100", "AB7", "B", "1", "."]
    assert row(text, "full").split()[-1] == "#"


def test_color_is_used_only_on_a_color_terminal() -> None:
    answer = everything()
    colored = printed(answer, force_terminal=True, color_system="standard")
    assert "\x1b[" in colored
    assert "\x1b[" not in printed(answer)


def test_in_a_large_fleet_equal_nodes_share_a_row_and_all_shows_each() -> None:
    answer = map_of(*(node(f"n{number:04}", card(0), *([card(1)] if number % 2 else [])) for number in range(1000)),
                   node("z", card(0, piece("m"))))
    text = printed(answer)
    assert "n0000 and 499 more  1xH100" in text
    assert "n0001 and 499 more  2xH100" in text
    assert len(text.splitlines()) < 10
    every = printed(answer, rows=None)
    assert sum(line.startswith("n0") for line in every.splitlines()) == 1000


def test_in_a_small_fleet_every_node_has_a_row() -> None:
    text = printed(map_of(*(node(f"n{number}", card(0)) for number in range(9))), rows=9)
    assert sum(line.startswith("n") for line in text.splitlines()) == 9


def test_more_rows_than_the_limit_are_counted() -> None:
    answer = map_of(*(node(f"n{number}", card(0, piece(f"m{number}"))) for number in range(90)))
    text = printed(answer, rows=20)
    assert "and 70 more nodes (--all shows every node)" in text
    assert "Aa m0: 1 live" in text
    assert "m20: 1 live" not in text
    assert "and 70 models not in these rows" in text
    assert text.splitlines()[-1].startswith("90 nodes alive, 90 cards, 0 free")


def test_the_last_line_sums_up_free_cards_on_live_nodes() -> None:
    answer = map_of(node("a", card(0, piece("m", 2_500)), card(1)), node("b", card(0), state="DEAD"))
    assert printed(answer).splitlines()[-1] == "1 node alive, 2 cards, 1.75 free (1 of them whole)"


@pytest.mark.parametrize(("count", "width"), [(1, 1), (26, 1), (27, 2), (676, 2)])
def test_every_model_has_its_own_letters(count: int, width: int) -> None:
    answer = map_of(node("a"), models=dict.fromkeys(f"m{number}" for number in range(count)))
    codes = letters([(entry.model, "") for entry in answer.legend])
    assert len(set(codes.values())) == count
    assert {len(code) for code in codes.values()} == {width}


def test_hundreds_of_models_fit_the_same_cells() -> None:
    answer = map_of(*(node(f"n{number}", card(0, piece(f"m{number}", 5_000), piece("m0", 2_000)))
                     for number in range(40)))
    text = printed(answer)
    assert "Am*▆" in text
    assert "and" not in row(text, "n12")


def test_hostile_names_are_shown_as_text() -> None:
    text = printed(map_of(node(EVIL, card(0, piece(EVIL)), hardware=EVIL), fleet=EVIL), width=200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]x[/red]\\x1b[2J\\u202e" in text


def test_each_variant_has_letters_of_its_own_and_the_color_of_its_model() -> None:
    answer = map_of(
        node("h", card(0, piece("org/a", variant="h100-fp8"))), node("a", card(0, piece("org/b"))),
        node("l", card(0, piece("org/a", holder="new", variant=EVIL)), card(1, piece("org/a"))),
        node("cpu", beside=[Beside(holder="live", model="org/a", replica="org/a/7", variant="h100-fp8")]))
    held = [LegendVariant(name="h100-fp8", live=1), LegendVariant(name=EVIL, new=1), LegendVariant(name="", live=1)]
    legend = [LegendEntry(model="org/a", live=2, new=1, variants=held), LegendEntry(model="org/b", live=1)]
    answer = answer.model_copy(update={"legend": legend})
    text = printed(answer, width=200)
    assert "A org/a as h100-fp8: 1 live" in text
    assert "B org/a as [red]x[/red]" in text
    assert "C org/a: 1 live" in text
    assert "D org/b: 1 live" in text
    assert "\x1b" not in text
    drawing = Drawing(answer)
    assert [cell.label for one in answer.nodes for cell in drawing.row(one).cells] == ["A", "D", "+B", "C"]
    assert "org/a/0 as h100-fp8 (live)" in drawing.row(answer.nodes[0]).cells[0].title
    assert "without a card: org/a/7 as h100-fp8" in drawing.row(answer.nodes[3]).title
    svg = render_placement_svg(answer)
    assert "org/a/0 as h100-fp8 (live)" in svg
    assert "A  org/a as h100-fp8: 1 live" in svg
    assert "<script>" not in svg
