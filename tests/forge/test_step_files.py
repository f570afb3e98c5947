"""The files a step writes for its runner: outputs that cannot be injected, a summary within its limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fleetctl.forge.forges import CUT_NOTE, SUMMARY_LIMIT, GitHub, dotenv, fit, github_outputs


def read_outputs(text: str) -> dict[str, str]:
    """Read GITHUB_OUTPUT as the runner does: NAME<<DELIMITER, lines, DELIMITER; or NAME=VALUE."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if delimited := re.fullmatch(r"([^=<]+)<<(.+)", line):
            value = []
            for inner in lines:
                if inner == delimited[2]:
                    break
                value.append(inner)
            found[delimited[1]] = "\n".join(value)
        elif line:
            name, _, value_text = line.partition("=")
            found[name] = value_text
    return found


@given(st.dictionaries(st.sampled_from(["plan_id", "summary", "exit_code"]),
                       st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]))))
def test_no_value_can_become_another_output(values: dict[str, str]) -> None:
    assert read_outputs(github_outputs(values)) == values


@pytest.mark.parametrize("hostile", ["x\nplan_id=evil", "fleetctl_0\nplan_id<<E\nevil\nE", "a\n\nexit_code=0"])
def test_hostile_values_stay_values(hostile: str) -> None:
    assert read_outputs(github_outputs({"summary": hostile, "plan_id": "p"})) == {"summary": hostile, "plan_id": "p"}


@given(st.text())
def test_a_dotenv_value_is_one_line(value: str) -> None:
    assert len(dotenv({"summary": value}).splitlines()) == 1


PARTS = st.lists(st.sampled_from([
    "# Plan\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n\n", "<details><summary>more</summary>\n\ntext\n\n</details>\n\n",
    "```diff\n+ one\n\n- two\n```\n\n", "````\n```\nx\n```\n\n````\n\n", "some words\n\n", "- one\n- two\n\n",
    "<details>\n\n```\ninside\n\n```\n\n</details>\n\n", "ü" * 50 + "\n\n",
]), max_size=30).map("".join)


@given(PARTS, st.integers(0, 1500))
def test_a_summary_stays_within_its_limit_and_has_no_unclosed_element(markdown: str, room: int) -> None:
    fitted = fit(markdown, room)
    assert len(fitted.encode()) <= room
    if fitted == markdown:
        return
    assert fitted == "" or fitted.endswith(CUT_NOTE)
    assert fitted.count("<details") == fitted.count("</details>")
    last = MarkdownIt().parse(fitted)[-3:] if fitted else []
    assert not last or [token.type for token in last] == ["paragraph_open", "inline", "paragraph_close"], fitted


def test_the_earlier_content_of_the_summary_counts_toward_the_limit(tmp_path: Path) -> None:
    page = tmp_path / "summary.md"
    page.write_text("x" * (SUMMARY_LIMIT - 300))
    GitHub({"GITHUB_STEP_SUMMARY": str(page)}, None).summarize("# Plan\n\n" + "words\n\n" * 100)
    assert page.stat().st_size <= SUMMARY_LIMIT
    assert page.read_text().endswith(CUT_NOTE)


def test_without_the_files_of_a_runner_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forge = GitHub({}, None)
    forge.summarize("x")
    forge.output({"plan_id": "y"})
    assert list(tmp_path.iterdir()) == []
