"""The word that a person probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """Return the known word that is spelt most like `word`; `cutoff` = how alike they must be, from 0 to 1."""
    from difflib import get_close_matches

    found = get_close_matches(word, sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, or one that `name` is the last part of."""
    names = sorted(known)
    found = nearest(name, names) or next((one for one in names if one.endswith(f"/{name}")), None)
    return f"did you mean {found}?" if found else None
