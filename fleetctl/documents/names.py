"""Names of models on a command line: what a name means, the checkpoint that a key holds, and commands with names;
and the word that the user probably meant.

A model key is any printable text, so it may need quotes in a shell, and may begin with `-`. Keys of NDIF hold the
checkpoint, `LanguageModel:{"repo_id": "org/model", "revision": "main"}`, and NDIF's commands take the checkpoint alone.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from shlex import quote

from fleetctl.errors import UsageError

USUAL_REVISION = "main"


def checkpoint_of(key: str) -> str | None:
    """Return the `repo_id` that a key of NDIF holds; None for any other key."""
    found = _held(key).get("repo_id")
    return found if isinstance(found, str) and found else None


def revision_of(key: str) -> str | None:
    """Return the revision of the checkpoint that a key of NDIF holds; None = the usual one."""
    found = _held(key).get("revision")
    return found if isinstance(found, str) and found not in ("", USUAL_REVISION) else None


def served_name_in(key: str) -> str | None:
    """Return the name by which clients can request the model of an NDIF key: its checkpoint, with `@` and the revision
    if that is not the usual one. None for any other key.
    """
    name, revision = checkpoint_of(key), revision_of(key)
    return f"{name}@{revision}" if name and revision else name


def _held(key: str) -> dict[str, object]:
    """Return the mapping in a key of NDIF; empty for any other key."""
    _, separator, held = key.partition(":{")
    try:
        found = json.loads("{" + held) if separator else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def with_key(name: str, keys: Collection[str], own: Collection[str] = ()) -> str:
    """Return MODEL, or MODEL/ID, with a model's key in place of its checkpoint; any other name stays as it is.

    A key always means itself. Raises UsageError if several of the keys hold the checkpoint, and not exactly one of
    those that are also in `own`.
    """
    head, _, number = name.rpartition("/")
    is_replica = bool(head) and number.isascii() and number.isdigit()
    if name in keys or (is_replica and head in keys):
        return name
    found = {key: key for key in keys if checkpoint_of(key) == name}
    found |= {f"{key}/{number}": key for key in keys if is_replica and checkpoint_of(key) == head}
    meant = [name for name, key in found.items() if key in own] or [*found]
    if len(meant) > 1:
        raise UsageError(f"{name} is the checkpoint of {len(meant)} models",
                         hint=f"write one of these: {shlex.join(sorted(meant))}")
    return meant[0] if meant else name


def flag_with(flag: str, name: str) -> str:
    """Return a flag with a name as its value, quoted for a shell; behind a long flag, one that begins with `-` needs
    the `=`.
    """
    return f"{flag}{'=' if name.startswith('-') and flag.startswith('--') else ' '}{shlex.quote(name)}"


def command_line(command: str, names: Sequence[str], flags: str = "") -> str:
    """Return a command with its plain arguments quoted for a shell; `flags` are words of a shell already.

    A name that begins with `-` would be read as a flag, so it follows `--`, behind all flags.
    """
    words = shlex.join(names)
    parts = (command, flags, "--", words) if any(name.startswith("-") for name in names) else (command, words, flags)
    return " ".join(filter(None, parts))


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
        [*_around(wanted, forwards), *(text[::-1] for text in _around(wanted[::-1], backwards))]))
    found = get_close_matches(wanted, likely, n=1, cutoff=CUTOFF if len(word) > SHORT else SHORT_CUTOFF)
    return lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest name, or with one that has `name` as its last part; quoted for a shell.

    A key of NDIF is compared by its checkpoint: the text around it is alike in all of them.
    """
    names = {checkpoint_of(key) or key: key for key in sorted(known, reverse=True)}
    given = checkpoint_of(name) or name
    found = nearest(given, names) or next((key for key in sorted(names) if key.endswith(f"/{given}")), None)
    return f"did you mean {quote(names[found])}?" if found else None


@lru_cache(maxsize=4)
def _index(known: tuple[str, ...]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the words by lower-case form, these forms sorted, and these forms reversed and sorted."""
    lower = {name.lower(): name for name in sorted(known) if len(name) <= LONGEST}
    return lower, sorted(lower), sorted(name[::-1] for name in lower)


def _around(word: str, words: Sequence[str]) -> Sequence[str]:
    at = bisect(words, word)
    return words[max(0, at - AROUND):at + AROUND]
