from __future__ import annotations

import pytest
from random_cases import cases

from .judge import content
from .mutate import Mutator
from .trial import trial


def test_mutated_fleet_files_keep_comments_and_meaning_and_are_stable_after_one_pass() -> None:
    mutator, ends = Mutator(seed=11), set()
    for _ in range(cases(400)):
        text = mutator.mutant()
        end, fault = trial(text)
        assert not fault, f"{fault}:\n{text}"
        ends.add(end)
    assert {"formatted", "FL008"} <= ends


@pytest.mark.parametrize(("text", "lost"), [
    ("a: 1\n...\n# end\n", "a: 1\n"), ("a:  # one\n  [1]  # two\n", "a: [1]  # two\n"),
    ("a: [1,  # one\n 2]\n", "a: [1, 2]\n"), ("a: |  # one\n  text\n", "a: |\n  text\n"),
    ("a: 1\n", "a: '1'\n"), ("a: {b: 1, c: 2}\n", "a: {b: 2, c: 1}\n"), ("a: |\n  x", "a: |\n  x\n"),
])
def test_the_judge_detects_a_lost_comment_and_a_changed_meaning(text: str, lost: str) -> None:
    assert content(text) != content(lost)
    assert content(text) == content(text.replace("a:", "'a':"))
