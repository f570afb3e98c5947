"""Differences as text, each with its path, the old value and the new one; and as tables: the effect on the models of
the change since a base revision alone, and the differences in the files. Texts are not escaped yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice, takewhile

from fleetctl.documents.difference import CountsThen, Difference, Effect, FleetDiff, PlanChange, Revision
from fleetctl.documents.mask import MASK
from fleetctl.documents.quantity import count_of, format_share
from fleetctl.render.report.model import Cell, Column, Table

EFFECTS: dict[Effect, str] = {
    "additive": "more may be created",
    "none": "running replicas are not affected",
    "drift": "running replicas keep the old spec",
    "held": "nothing is removed",
}
TAGS: dict[Effect, str] = {"additive": "additive", "none": "no effect", "drift": "drift", "held": "held"}
NOTHING = "not set"
OTHER_MASK = f"{MASK} (a different value)"
"""Shown as the new value if both values are masked but differ."""

_MORE = "…"
THE_FLEET, THE_MODEL = "the fleet", "the whole model"
_OBJECT_ID = re.compile("[0-9a-f]{40,64}")
MAX_VALUE = 120
MAX_MATCHED = 200
"""The most list items matched against each other; the output of more would be cut at MAX_VALUE anyway."""
EFFECT_COLUMNS = (
    Column("model", "model", name=True), Column("kind", "change"), Column("before", "before"),
    Column("after", "after"), Column("message", "what it does"))
DIFFERENCE_COLUMNS = (
    Column("effect", "effect"), Column("model", "model", name=True), Column("path", "what", name=True),
    Column("old", "was", name=True), Column("new", "is", name=True), Column("place", "where", name=True),
    Column("message", "effect on running replicas"))
KINDS = {"added": "added", "removed": "removed", "changed": "changed", "sideEffect": "side effect"}
SIGNS = {"added": "+", "removed": "-", "changed": "~", "sideEffect": "*"}


def revision_text(revision: Revision) -> str:
    """Return the name of a revision, followed by its commit unless the name is the commit."""
    def short(name: str) -> str:
        return name[:10] if _OBJECT_ID.fullmatch(name) else name

    name, commit = revision.name, revision.commit or ""
    if commit and "..." in name:
        one, _, other = name.partition("...")
        name = f"the merge base of {short(one)} and {short(other)}"
    return short(name) if not commit or commit.startswith(name) else f"{name} ({commit[:10]})"


def value_text(value: object) -> str:
    """Return a value on one line, written as in a fleet file."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value if value and value.isprintable() else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return " ".join(map(_item_text, value))
    return json.dumps(value, ensure_ascii=False)


def values_of(difference: Difference) -> tuple[str, str]:
    """Return both values for two cells. Two lists show only their differing items, and an ellipsis for the rest."""
    old, new = difference.old, difference.new
    if isinstance(old, list) and isinstance(new, list):
        return _differing_items(list(map(_item_text, old)), list(map(_item_text, new)))
    return _cut(value_text(old)), OTHER_MASK if old == new == MASK else _cut(value_text(new))


def change_text(difference: Difference) -> str:
    """Return one difference on one line: `workers.main.members[0].engine.args: --a -> --b`."""
    from fleetctl.review.compare_model import REORDERED  # a plan without differences does not need it

    old, new = values_of(difference)
    note = " (only the order)" if difference.message.startswith(REORDERED) else ""
    return f"{difference.path}: {old} -> {new}{note}"


def totals_line(diff: FleetDiff) -> str:
    """Return the last line of a diff: the number of differences by effect."""
    if not diff.differences:
        return "Diff: no difference in meaning"
    counts = ", ".join(f"{diff.summary.get(effect, 0)} {tag}" for effect, tag in TAGS.items())
    return f"Diff: {count_of(len(diff.differences), 'difference')}: {counts}; nothing is ever removed"


def wanted_line(diff: FleetDiff) -> str:
    """Return the models, replicas and GPUs wanted, before and after."""
    before, after = diff.before, diff.after
    return ", ".join([_step(str(before.models), str(after.models), "model"),
                      _step(str(before.replicas), str(after.replicas), "replica"),
                      _step(format_share(before.gpus), format_share(after.gpus), "GPU")])


def _item_text(item: object) -> str:
    text = value_text(item)
    return json.dumps(item, ensure_ascii=False) if text == item and " " in text else text


def _step(before: str, after: str, noun: str) -> str:
    step = after if before == after else f"{before} -> {after}"
    return f"{step} {noun}" if after == "1" else f"{step} {noun}s"


def _differing_items(old: list[str], new: list[str]) -> tuple[str, str]:
    """Return the differing items of two lists; an ellipsis replaces common items, except the flag before a value."""
    left: list[str] = []
    right: list[str] = []
    for equal, a, b, c, d in _runs(old, new):
        if equal:
            flag = [old[b - 1]] if b < len(old) and old[b - 1].startswith("-") else []
            common = [*([_MORE] if b - a > len(flag) else []), *flag]
            left += common
            right += common
        else:
            left += old[a:b]
            right += new[c:d]
    return _joined(left), _joined(right)


def _joined(items: list[str]) -> str:
    return _cut(" ".join(items)) if set(items) - {_MORE} else NOTHING


def _runs(old: list[str], new: list[str]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Yield runs of equal or differing items: whether they are equal, then the bounds in `old` and in `new`."""
    start = _common_length(zip(old, new, strict=False))
    shorter = min(len(old), len(new)) - start
    end = _common_length(islice(zip(reversed(old), reversed(new), strict=False), shorter))
    left, right = old[start:len(old) - end], new[start:len(new) - end]
    if start:
        yield True, 0, start, 0, start
    if max(len(left), len(right)) > MAX_MATCHED:  # matching takes time proportional to the product of the lengths
        yield False, start, start + len(left), start, start + len(right)
    else:
        for tag, a, b, c, d in SequenceMatcher(a=left, b=right, autojunk=False).get_opcodes():
            yield tag == "equal", start + a, start + b, start + c, start + d
    if end:
        yield True, len(old) - end, len(old), len(new) - end, len(new)


def _common_length(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE - 1] + _MORE


def change_tables(change: PlanChange | None) -> tuple[Table, ...]:
    """Return both tables, or none without a base. A terminal shows only the first, and names `fleetctl diff`."""
    if change is None:
        return ()
    effects = [(one.key, KINDS[one.kind], _counts(one.before), _counts(one.after), one.message)
               for one in change.models]
    return (
        Table("effect", f"This change alone, since {revision_text(change.base)}", EFFECT_COLUMNS, tuple(effects),
              note=f"{change_sentence(change)}.", line="{model}: {message}", most=50,
              signs=tuple(SIGNS[one.kind] for one in change.models)),
        Table("difference", "What changed in the files", DIFFERENCE_COLUMNS,
              tuple(map(difference_row, change.differences)), folded=True, rank=2,
              readers=frozenset({"page", "program"})),
    )


def change_sentence(change: PlanChange) -> str:
    """Return the effect of the change alone, and how many replicas are due without it."""
    parts = [f"{change.create} more to create" if change.also_without else f"{change.create} to create"]
    if change.no_longer:
        parts.append(f"{change.no_longer} no longer to create")
    if change.blocked:
        parts.append(f"{abs(change.blocked)} {'more' if change.blocked > 0 else 'fewer'} blocked")
    if change.drift:
        parts.append(f"{count_of(change.drift, 'running replica')} to drift")
    if due := change.also_without:
        which = f"the other {due} of {due + change.create}" if change.create else f"the {due}"
        parts[-1] += f"; {which} to create {'is' if due == 1 else 'are'} due anyway"
    return ", ".join(parts)


def _counts(counts: CountsThen | None) -> str:
    if counts is None:
        return "not in the file"
    others = ((counts.create, "to create"), (counts.blocked, "blocked"), (counts.hold, "held"),
              (counts.drift, "drifting"), (counts.fetch, "to fetch weights"))
    return ", ".join([f"{counts.wanted} wanted", *(f"{count} {word}" for count, word in others if count)])


def difference_row(one: Difference, models: Cell | None = None) -> tuple[Cell, ...]:
    """Return the row of a difference; `models` names the models that share it, if there are several."""
    place = str(one.new_source or one.old_source or "")
    return (TAGS[one.effect], models or one.model or THE_FLEET, one.path or THE_MODEL, *values_of(one), place,
            one.message)
