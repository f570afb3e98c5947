"""Finds the word that the user probably meant."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import lru_cache
from shlex import quote

from fleetctl.documents.names import checkpoint_of

CUTOFF, SHORT_CUTOFF, SHORT = 0.6, 0.5, 3
"""Minimum similarity from 0 to 1: difflib's own default, and a lower one for words of at most SHORT letters."""
LONGEST = 512
"""The most characters of a word, as of a model key: the time to compare two words grows with their product."""
MANY, AROUND = 200, 40
"""Among more than MANY words only AROUND on each side are compared, sorted by their beginnings and by their ends."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most similar to `word`, ignoring case, or None; a word beyond LONGEST resembles none."""
    return _nearest(word, tuple(known)) if len(word) <= LONGEST else None


@lru_cache(maxsize=1024)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches

    lower, forwards, backwards = _index(known)
    for form in (word, word.replace("-", ""), word.replace("_", "")):
        if form.lower() in lower:
            return lower[form.lower()]
    wanted = word.lower()
    likely = forwards if len(forwards) <= MANY else list(dict.fromkeys(
        [*_around(wanted, forwards), *(one[::-1] for one in _around(wanted[::-1], backwards))]))
    found = get_close_matches(wanted, likely, n=1, cutoff=CUTOFF if len(word) > SHORT else SHORT_CUTOFF)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, or with one that has `name` as its last part; quoted for a shell.

    A key of NDIF is compared by its checkpoint: the text around it is alike in all of them.
    """
    names = {checkpoint_of(one) or one: one for one in sorted(known, reverse=True)}
    given = checkpoint_of(name) or name
    found = nearest(given, names) or next((one for one in sorted(names) if one.endswith(f"/{given}")), None)
    return f"did you mean {quote(names[found])}?" if found else None


@lru_cache(maxsize=4)
def _index(known: tuple[str, ...]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the words by lower-case form, these forms sorted, and these forms reversed and sorted."""
    lower = {one.lower(): one for one in sorted(known) if len(one) <= LONGEST}
    return lower, sorted(lower), sorted(one[::-1] for one in lower)


def _around(word: str, words: Sequence[str]) -> Sequence[str]:
    place = bisect(words, word)
    return words[max(0, place - AROUND):place + AROUND]
