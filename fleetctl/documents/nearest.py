"""The word that a person probably meant."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF, SHORT_CUTOFF, SHORT = 0.6, 0.5, 3
"""How similar two words must be, from 0 to 1: difflib's own default, and less for words of so many letters or fewer."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, whatever the case, or None."""
    from difflib import get_close_matches

    lower = {one.lower(): one for one in sorted(known)}
    for form in (word, word.replace("-", ""), word.replace("_", "")):
        if form.lower() in lower:
            return lower[form.lower()]
    found = get_close_matches(word.lower(), lower, n=1, cutoff=CUTOFF if len(word) > SHORT else SHORT_CUTOFF)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, or one that `name` is the last part of."""
    names = sorted(known)
    found = nearest(name, names) or next((one for one in names if one.endswith(f"/{name}")), None)
    return f"did you mean {found}?" if found else None
