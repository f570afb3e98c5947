"""Untrusted text stays text in a comment: a parser reads it back."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from random_cases import cases

from fleetctl.render.report.markdown import code, comment, length, prose, render_markdown, tagged
from fleetctl.render.visible import cut, visible
from tests.render.report import gfm
from tests.render.report.samples import HOSTILE, hostile_texts, report

BENIGN = render_markdown(report("x"))
ALLOWED = {"text", "code_inline", "<br>", "strong_open", "strong_close"}
SAFE_WORD = re.compile(r"[A-Za-z0-9.,;:()|%'\\-]*")  # pipes and backslashes were entities


def expected(text: str) -> str:
    return cut(visible(text), 500)


@settings(max_examples=cases(300))
@given(hostile_texts)
@example("a\\|b")
@example("1. a")
def test_hostile_text_is_only_text_and_shown_unchanged(text: str) -> None:
    markdown = render_markdown(report(text))
    assert_no_block_no_markup_and_no_link(markdown)
    assert_cells_show(text, markdown)


def assert_no_block_no_markup_and_no_link(markdown: str) -> None:
    assert gfm.shape(markdown) == gfm.shape(BENIGN)
    for run in gfm.inlines(markdown):
        assert set(run.kinds) <= ALLOWED
        for word in run.plain.split():
            assert SAFE_WORD.fullmatch(word), word
            assert not re.fullmatch(r"(?i)\W*([0-9a-f]{7,40}|www\.?)\W*", word), word


def assert_cells_show(text: str, markdown: str) -> None:
    body = gfm.tables(markdown)[1][1:]
    plain = expected(text)
    # rendered Markdown drops blanks around a cell's text
    assert [[cell.strip() for cell in row] for row in body] == [
        [plain.strip(), "1", plain.strip()], [plain.strip(), "2", f"{plain}\n{plain}".strip()]]


def test_raw_html_is_only_our_own() -> None:
    for text in HOSTILE:
        blocks = gfm.html_blocks(render_markdown(report(text)))
        assert [re.sub(r"plan:.* -->", "plan: -->", block.strip()) for block in blocks] == [
            "<!-- fleetctl:plan: -->", "<details><summary>Folded (2)</summary>", "</details>",
            "<details><summary>Facts (1)</summary>", "</details>"], ascii(text)


def test_the_marker_is_one_comment_in_the_first_line() -> None:
    markers = [comment(text) for text in HOSTILE]
    assert [one for one in markers if not (one.startswith("<!-- ") and one.index("-->") == len(one) - 3)] == []
    assert [one for one in markers if not (one.isascii() and one.isprintable())] == []


def test_text_between_tags_contains_no_markup() -> None:
    inside = [tagged(text).removeprefix("<code>").removesuffix("</code>") for text in HOSTILE]
    assert [text for text in inside if set("<>\n") & set(text)] == []


def test_a_sentence_stays_readable_and_only_its_names_are_code() -> None:
    assert prose("needs 8 free GPUs on one node; best is 6 on node-7 (4 nodes: INSUFFICIENT_GPU), short 79.65Gi.") == (
        "needs 8 free GPUs on one node; best is 6 on `node-7` (4 nodes: `INSUFFICIENT_GPU`), short 79.65Gi.")


def test_a_name_with_blanks_in_its_brackets_is_one_piece_of_code() -> None:
    key = 'LanguageModel:{"repo_id": "org/m", "revision": "main"}'
    assert prose(f"would fit without {key}/0 (not started yet), {key}/1: 1 GPU") == (
        f"would fit without `{key}/0` (not started yet), `{key}/1`: 1 GPU")
    assert prose("need a node with pool=in(A100, H100), or (m/0, m/1) on in(L4) in all") == (
        "need a node with `pool=in(A100, H100)`, or (`m/0`, `m/1`) on `in(L4)` in all")
    assert prose("an open { bracket and f( too") == "an open `{` bracket and `f(` too"


def test_a_name_with_parentheses_is_one_span_and_those_of_the_sentence_stay_outside() -> None:
    assert prose("need a node with ray.io/accelerator-type=in(A100, H100) (x, y); found (l4)") == (
        "need a node with `ray.io/accelerator-type=in(A100, H100)` (x, y); found (`l4`)")
    assert prose("no node has a=!in(x, y), f(g) or b(1, 2 (nor c=in(d))") == (
        "no node has `a=!in(x, y)`, `f(g)` or `b(1`, 2 (nor `c=in(d)`)")


def test_text_that_a_forge_would_link_is_code() -> None:
    assert prose("see deadbee and #1 of @you at www.example.com.") == (
        "see `deadbee` and `#1` of `@you` at `www.example.com`.")


def test_a_command_in_backticks_is_one_piece_of_code_without_them() -> None:
    key = 'LanguageModel:{"repo_id": "org/m", "revision": "main"}'
    assert prose(f"to replace it: `fleetctl replace '{key}' -f a.yaml`, which waits. `m` ends") == (
        f"to replace it: `fleetctl replace '{key}' -f a.yaml`, which waits. `m` ends")
    assert prose("an odd ` or `two words") == "an odd `` ` `` or `` `two `` words"
    assert prose("`a | @b` and `` here") == "`a `&#124;` @b` and ``` `` ``` here"


def test_every_name_is_code() -> None:
    assert [code("gpt2"), code("a`b"), code("`"), code(" a "), code("a|b")] == [
        "`gpt2`", "``a`b``", "`` ` ``", "`  a  `", "`a`&#124;`b`"]


def test_a_cut_text_counts_the_missing_characters() -> None:
    assert cut("abcdef", 4) == "abcd... (2 more characters)"


def test_length_counts_characters_beyond_the_basic_plane_twice() -> None:
    assert length("a\N{PILE OF POO}") == 3
