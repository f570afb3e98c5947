"""HTML built from values: for any text, a parser reads back exactly the intended elements."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.render.page.report_page import Markup, el, many, text
from fleetctl.render.visible import visible

HOSTILE = st.text(st.characters(codec=None)) | st.sampled_from([
    "</script>", "<!--", "]]>", '" onmouseover="x', "'", "&lt;", "&#60;", "<b", "\u202e", "\x00", "\ud800", "`",
])


class Parsed(HTMLParser):
    """The tags, attributes and texts that a parser reads."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.content += data


def read(markup: str) -> Parsed:
    parser = Parsed()
    parser.feed(markup)
    parser.close()
    return parser


@given(HOSTILE, HOSTILE)
def test_text_and_attributes_are_read_back_as_shown(content: str, attribute: str) -> None:
    found = read(el("p", content, title=attribute))
    assert found.tags == [("p", [("title", visible(attribute))])]
    assert found.content == visible(content)


@given(st.lists(HOSTILE, max_size=4))
def test_many_texts_stay_texts(parts: list[str]) -> None:
    found = read(el("div", parts))
    assert [tag for tag, _ in found.tags] == ["div"]
    assert found.content == "".join(visible(part) for part in parts)


def test_markup_is_not_escaped_twice() -> None:
    assert el("p", el("b", "a & b")) == "<p><b>a &amp; b</b></p>"
    assert text(text("<")) == "&lt;"


def test_attributes_have_their_html_names_and_may_be_absent() -> None:
    assert el("input", class_="a", data_total="x", hidden=True, title=None, open=False) == (
        '<input class="a" data-total="x" hidden>')
    assert el("td", data_count=0) == '<td data-count="0"></td>'


def test_none_and_empty_texts_render_to_nothing() -> None:
    assert many(None, [], "") == Markup("")
