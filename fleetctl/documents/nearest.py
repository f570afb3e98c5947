"""The word that a person probably meant."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import lru_cache

CUTOFF, SHORT_CUTOFF, SHORT = 0.6, 0.5, 3
"""How similar two words must be, from 0 to 1: difflib's own default, and less for words of so many letters or fewer."""
MANY, AROUND = 200, 40
"""Of more words than MANY, only those are compared that are so many places around the word, by beginning and by end."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, whatever the case, or None."""
    from difflib import get_close_matches

    lower, forwards, backwards = _index(tuple(known))
    for form in (word, word.replace("-", ""), word.replace("_", "")):
        if form.lower() in lower:
            return lower[form.lower()]
    wanted = word.lower()
    likely = forwards if len(forwards) <= MANY else list(dict.fromkeys(
        [*_around(wanted, forwards), *(one[::-1] for one in _around(wanted[::-1], backwards))]))
    found = get_close_matches(wanted, likely, n=1, cutoff=CUTOFF if len(word) > SHORT else SHORT_CUTOFF)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, or one that `name` is the last part of."""
    names = sorted(known)
    found = nearest(name, names) or next((one for one in names if one.endswith(f"/{name}")), None)
    return f"did you mean {found}?" if found else None


@lru_cache(maxsize=4)
def _index(known: tuple[str, ...]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the words by their small letters, these in order, and in the order of their ends, each from its end."""
    lower = {one.lower(): one for one in sorted(known)}
    return lower, sorted(lower), sorted(one[::-1] for one in lower)


def _around(word: str, words: Sequence[str]) -> Sequence[str]:
    place = bisect(words, word)
    return words[max(0, place - AROUND):place + AROUND]
