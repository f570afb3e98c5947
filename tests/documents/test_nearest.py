"""Finding the word that was probably meant, quickly even among thousands of words and for many typos."""

from __future__ import annotations

import difflib

import pytest

from fleetctl.documents.nearest import did_you_mean, nearest

MANY = [f"team-{number % 7}/model-{number}-instruct" for number in range(3000)]


def test_among_thousands_a_word_is_compared_with_only_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(word: str, possibilities: list[str], **options: float) -> list[str]:
        compared.append(len(possibilities))
        return close_matches(word, possibilities, **options)  # type: ignore[call-overload, no-any-return]

    close_matches = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", counted)
    assert nearest("somewhat-else", MANY) is None
    assert compared
    assert max(compared) < 200


@pytest.mark.parametrize("typo", [
    "taem-3/model-1809-instruct", "team-3/model-1809-instrct", "team-3/modle-1809-instruct",
    "eam-3/model-1809-instruct", "TEAM-3/Model-1809-Instruct", "team-3/model-1809-instructt"])
def test_a_typo_anywhere_is_found_among_thousands(typo: str) -> None:
    assert nearest(typo, MANY) == "team-3/model-1809-instruct"


def test_the_last_part_of_a_name_is_found_among_thousands() -> None:
    assert did_you_mean("model-2001-instruct", MANY) == "did you mean team-6/model-2001-instruct?"


NDIFS = ['a.LanguageModel:{"repo_id": "EleutherAI/gpt-j-6b", "revision": "main"}',
         'a.LanguageModel:{"repo_id": "openai-community/gpt2", "revision": "main"}']


@pytest.mark.parametrize(("given", "meant"), [
    ("openai-comunity/gpt2", 1), ("gpt2", 1), ("openai-community/gpt2", 1), ("eleutherai/gpt-j-6b", 0),
    ('LanguageModel:{"repo_id": "EleutherAI/gpt-j-6b"}', 0), ("Qwen/Qwen3-8B", None),
    ('a.LanguageModel:{"repo_id": "Qwen/Qwen3-8B", "revision": "main"}', None)])
def test_keys_of_ndif_are_compared_by_their_checkpoints(given: str, meant: int | None) -> None:
    assert did_you_mean(given, NDIFS) == (None if meant is None else f"did you mean '{NDIFS[meant]}'?")
