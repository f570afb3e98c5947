"""Which words and counts are good, bad or worth a look: the colours of the page and of the terminal."""

from __future__ import annotations

from typing import Literal

Tone = Literal["good", "bad", "warn", "soft", "calm", ""]

COUNT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("create", "additive", "ready", "ok"), "good"),
    **dict.fromkeys(("blocked", "failed", "errors", "unknown", "missing"), "bad"),
    **dict.fromkeys(("hold", "held", "restarting", "outdated", "drift", "lost", "partial", "warnings"), "warn"),
}
"""The tone of a count that is not zero, by the key of its total or column."""

TEXT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("+", "additive", "ready", "gone", "ok"), "good"),
    **dict.fromkeys(("!", "refused", "error", "failed", "unknown", "blocked", "lost", "dead", "never constructed",
                     "DEAD"), "bad"),
    **dict.fromkeys(("~", "*", "drift", "warning", "partial", "restarting", "outdated", "skipped", "draining",
                     "DRAINING"), "warn"),
    **dict.fromkeys(("-", "starting", "running", "held", "gone"), "calm"),
    "=": "soft",
}
"""The tone of a sign or of a word for a state."""


def count_tone(key: str, count: int) -> Tone | Literal["zero"]:
    """Return the tone of a count, "" where it is no better or worse than any other."""
    return COUNT_TONES.get(key, "") if count else "zero"


def text_tone(text: str) -> Tone:
    """Return the tone of a sign or state; of several, as in `ready, outdated`, that of the last one that has a tone."""
    words = (word.partition(" (")[0].rstrip() for word in reversed(text.split(", ")))
    return next((TEXT_TONES[word] for word in words if word in TEXT_TONES), "")
