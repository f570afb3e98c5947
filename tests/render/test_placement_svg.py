"""The placement map as SVG: well-formed, self-contained, complete, and safe with hostile names."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from map_worlds import EVIL, card, everything, map_of, node, piece

from fleetctl.documents.answers import PlacementMap
from fleetctl.render.placement_map import render_placement_svg

SVG = "{http://www.w3.org/2000/svg}"


def parsed(answer: PlacementMap) -> ElementTree.Element:
    return ElementTree.fromstring(render_placement_svg(answer))


def cells(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "card"]


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.get(name) or "nan") for name in names]


@pytest.mark.parametrize("answer", [
    everything(), map_of(), map_of(node("cpu", hardware="64 CPUs")),
    map_of(*(node(f"n{number}", *(card(index, piece(f"m{index}")) for index in range(8))) for number in range(300))),
], ids=["everything", "nothing", "no cards", "300 nodes"])
def test_the_svg_parses_and_has_a_cell_for_every_card(answer: PlacementMap) -> None:
    root = parsed(answer)
    assert root.tag == f"{SVG}svg"
    assert len(cells(root)) == sum(len(node.cards) for node in answer.nodes)
    assert sum(group.get("class", "").startswith("node") for group in root.iter(f"{SVG}g")) == len(answer.nodes)


def test_the_svg_loads_nothing_and_runs_nothing() -> None:
    text = render_placement_svg(everything())
    assert not re.search(r"<script|<image|<use|<foreignObject|href|@import|\son\w+=|javascript:", text, re.IGNORECASE)
    assert re.findall(r"url\(([^)]*)\)", text) == ["#hatch"]
    assert re.findall(r"https?://[^\"<\s]+", text) == ["http://www.w3.org/2000/svg"]


def test_the_svg_has_text_alternatives() -> None:
    root = parsed(everything())
    assert root.get("role") == "img"
    labels = root.get("aria-labelledby", "").split()
    ids = {element.get("id"): element for element in root}
    assert [ids[label].tag for label in labels] == [f"{SVG}title", f"{SVG}desc"]
    assert "fleet lab" in (ids["title"].text or "")
    assert "org/a: 1 live" in (ids["desc"].text or "")
    titles = [group.findtext(f"{SVG}title") or "" for group in cells(root)]
    assert "shared card 0; org/a/0 0.5 (live); org/b/0 0.25 (live); 0.25 free" in titles
    assert any("granted to an unknown holder" in title and "not this fleet's" in title for title in titles)
    assert any("dirty" in title for title in titles)


def test_colors_follow_the_color_scheme_of_the_reader() -> None:
    style = parsed(everything()).findtext(f"{SVG}style") or ""
    assert "@media (prefers-color-scheme:dark)" in style
    assert style.count(".page{fill:") == 2
    assert "var(" not in style


def test_pieces_fill_a_cell_from_the_bottom_by_their_share() -> None:
    (cell,) = cells(parsed(map_of(node("a", card(0, piece("m", 5_000), piece("n", 2_500))))))
    frame, *pieces = cell.findall(f"{SVG}rect")
    _, top, side = numbers(frame, "x", "y", "height")
    assert [numbers(one, "height") for one in pieces] == [[side / 2], [side / 4]]
    assert [numbers(one, "y")[0] for one in pieces] == [top + side / 2, top + side / 4]
    assert pieces[0].get("fill") != pieces[1].get("fill")


def test_everything_is_inside_the_picture() -> None:
    for answer in (everything(), map_of(node("n" * 300, *(card(index, piece("m" * 200)) for index in range(40))))):
        root = parsed(answer)
        width, height = numbers(root, "width", "height")
        for rect in root.iter(f"{SVG}rect"):
            if rect.get("x") is None:
                continue
            x, y, wide, tall = numbers(rect, "x", "y", "width", "height")
            assert 0 <= x <= x + wide <= width
            assert 0 <= y <= y + tall <= height


def test_the_heading_fits_in_a_wide_font_too() -> None:
    """DejaVu Sans Mono, the fallback of a browser without our fonts, is 0.602 em wide."""
    root = parsed(map_of(node("a", card(0))))
    head = next(text for text in root.iter(f"{SVG}text") if text.get("class") == "head")
    [width], [x] = numbers(root, "width"), numbers(head, "x")
    assert x + len(head.text or "") * 14 * 0.602 <= width


def test_no_two_cells_overlap() -> None:
    root = parsed(map_of(node("a", *(card(index) for index in range(40))), node("b", card(0))))
    frames = [cell.find(f"{SVG}rect") for cell in cells(root)]
    assert len({(frame.get("x"), frame.get("y")) for frame in frames if frame is not None}) == 41


def test_hostile_names_stay_text() -> None:
    answer = map_of(node(EVIL, card(0, piece(EVIL), hardware=EVIL), hardware=EVIL, cordoned_by=EVIL), fleet=EVIL)
    text = render_placement_svg(answer)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    root = ElementTree.fromstring(text)
    assert not [element for element in root.iter() if "script" in element.tag]
    (title,) = [cell.findtext(f"{SVG}title") or "" for cell in cells(root)]
    assert "</title><script>alert(1)</script>&\"':3" in title


def test_the_legend_explains_the_signs_on_the_map_and_no_others() -> None:
    def explained(answer: PlacementMap) -> list[str]:
        return [line.text or "" for line in parsed(answer).iter(f"{SVG}text") if line.get("class") == "small"][1:]

    assert explained(map_of(node("a", card(0, piece("m"))))) == ["A  m: 1 live"]
    signs = [line[0] for line in explained(everything()) if line[0] not in "ABCD"]
    assert signs == ["+", "~", "?", "!", "x"]


def test_every_model_has_its_own_color() -> None:
    models = [f"m{number}" for number in range(60)]
    root = parsed(map_of(node("a", *(card(index, piece(model)) for index, model in enumerate(models)))))
    fills = {rect.get("fill") for cell in cells(root) for rect in cell.findall(f"{SVG}rect") if rect.get("fill")}
    assert len(fills) == 60
