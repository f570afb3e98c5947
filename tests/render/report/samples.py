"""Reports for the tests of the formats: one with text in every field, and hostile texts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fleetctl.documents.position import Position
from fleetctl.render.report.model import Column, Finding, Report, Table, Total

HOSTILE = (
    "|", "a|b", "a\\|b", "\\", "\\\\|", "a\\", "`", "``", "```", "`a", "a`", "``` \n# head", "a`b``c```d", " `", "` ",
    "<!-- x", "-->", "--> <b>hi</b>", "<!--", "</details>", "</summary></details>", "<details>", "</code>",
    "<img src=x>", "<script>alert(1)</script>", "</script>", "&lt;b&gt;", "&#64;admin", "&amp;", "]]>", "<![CDATA[",
    "<?php", "<br>", "@octocat", "hi @org/team", "(@octocat)", "#1", "owner/repo#1", "GH-1", "1a2b3c4d",
    "deadbeefdeadbeef", "www.example.com", "https://example.com", "http://a", "mailto:a@example.com", "a@example.com",
    "[a](https://example.com)", "![a](b)", "[a]: https://example.com", "[^1]", "[^1]: note", "[ ] task", "*a*",
    "**a**", "_a_", "__a__", "~~a~~", "***", "---", "===", "# a", "## a", "> a", "- a", "+ a", "1. a", "1)", "1.",
    "    code", "\ta", "$x$", "$$x$$", "$`x`$", ":smile:", ":+1:", "a:b:c", "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://example.com\x07", "\r", "\n", "a\nb", "\r\n::error::x", "::error::x", "\n::error file=a::x",
    "##[error]x", "\n##[group]x", "::set-output name=a::b", "%0A::error::x", "%0a", "%", "%25", "a,line=1",
    "file=x,line=2::", "\u202ereverse", "\u200bzero", "\ufeff", "\u2028", "\u0085", "\x00", "\x0b", "\ud800",
    "\uffff", "\U000e0041", "${{ github.token }}", "{0}", "{{0}}", "", " ", "  ", " a", "a ", "a  b", "None", "'",
    '"', "';", "=cmd|' /C calc'!A0", "e\u0301\u0301\u0301", "a\u00a0b", "\N{PILE OF POO}" * 3, "(", ")", "(a)", "a)",
    "a.", "a,", ".,;:)", "www", "www.", "!",
)
"""Texts that escaped from reports in other programs, and edge cases of our own rules."""

FRAGMENTS = (
    "`", "``", "|", "\\", "@", "#", "1", "[", "]", "(", ")", "<", ">", "!", "--", "&", ";", ":", "::", "*", "_", "~",
    "$", "%", ",", ".", "=", "+", " ", "\n", "\r", "\t", "\x1b", "\u202e", "\u200b", "a", "bc", "www.", "://", "//",
    "-", "/", "deadbee", "error", "details", "code", "script", "br", "\ud800", "\U0001f600", '"', "'", "{", "}", "^",
)
hostile_texts = st.one_of(st.sampled_from(HOSTILE), st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
                          st.text(max_size=20))


def report(text: str = "x", **changes: Any) -> Report:
    """A report with `text` in every field that may hold untrusted text."""
    columns = (Column("name", "name", name=True), Column("count", "count", numeric=True), Column("why", "why"))
    rows = ((text, "1", text), (text, "2", (text, text)))
    return Report(**{
        "kind": "plan", "identity": f"plan:{text}", "fleet": text, "title": f"Plan for fleet {text}",
        "conclusion": f"All of {text} is well", "facts": (("commit", text),),
        "totals": (Total("wanted", "wanted", 2), Total("blocked", "blocked", 1)),
        "tables": (Table("row", "Rows", columns, rows), Table("more", "Folded", columns, rows, folded=True)),
        "findings": (
            Finding("notice", "CREATE", text, text, details=(text,)),
            Finding("error", "INSUFFICIENT_GPU", text, text, Position(file=f"fleets/{text}.yaml", line=7, column=3),
                    (text, text)),
            Finding("warning", "LOST", "other", text),
        ),
        "subjects": (text, "quiet"), "exit_code": 3, "file": "fleets/a.yaml", **changes,
    })
