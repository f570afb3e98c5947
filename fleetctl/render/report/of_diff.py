"""Differences as text, as tables of the effect of a change, and a whole diff as a report. Texts are not escaped yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby, islice, takewhile

from fleetctl.documents.canonical import short_commit
from fleetctl.documents.difference import CountsThen, Difference, Effect, FleetDiff, PlanChange, Revision
from fleetctl.documents.mask import MASK
from fleetctl.documents.quantity import count_of, first_few, format_share, grouped, some
from fleetctl.render.report.model import EVERYONE, Cell, Column, Finding, Level, Report, Table, Total

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
CHANGE = (Column("change", "change"), Column("message", "what it does"))
NOT_IN_A_TERMINAL = EVERYONE - {"terminal"}
BLOCKS_SHOWN, NAMES_SHOWN = 100, 3
_TAG_WIDTH = max(map(len, TAGS.values())) + 1
_Shared = tuple[Difference, tuple[str, ...]]
"""A difference and the models that share it; none for the fleet as a whole."""
_Block = tuple[tuple[str, ...], list[Difference]]
"""Models, and the differences that they share."""


def diff_report(diff: FleetDiff) -> Report:
    """Return the report of a diff."""
    shared = _shared_differences(diff.differences)
    blocks = _blocks(shared)
    base, head, wanted = revision_text(diff.base), revision_text(diff.head), wanted_line(diff)
    files = ", ".join(dict.fromkeys((*diff.base.files, *diff.head.files)))
    notes = [f"{TAGS[effect]}: {meaning}" for effect, meaning in EFFECTS.items() if diff.summary.get(effect)]
    if (omitted := len(blocks) - BLOCKS_SHOWN) > 0:
        notes.insert(0, f"and {count_of(omitted, 'more model')} (--format json lists them)")
    return Report(
        kind="diff",
        identity=f"diff:{diff.fleet}",
        fleet=diff.fleet,
        title=f"Changes of fleet {diff.fleet}",
        conclusion=totals_line(diff),
        heading=(f"Fleet {diff.fleet}, from {base} to {head}", f"Wanted: {wanted}"),
        facts=(("fleet", diff.fleet), ("from", base), ("to", head), ("files", files), ("wanted", wanted)),
        totals=tuple(Total(effect, TAGS[effect], diff.summary.get(effect, 0)) for effect in EFFECTS),
        tables=(*_tables(diff.differences, shared), *_terminal_tables(blocks)),
        notes=tuple(notes),
        findings=tuple(map(_finding, shared)),
        subjects=tuple(dict.fromkeys(row.model for row in diff.differences if row.model is not None)),
        exit_code=diff.exit_code,
        file=next(iter(diff.head.files), ""))


def _tables(differences: Sequence[Difference], shared: Sequence[_Shared]) -> tuple[Table, ...]:
    """Return a row per difference; formats for people show a shared difference once, programs get every row."""
    if not differences:
        return ()
    every = tuple(difference_row(difference) for difference in differences)
    title = "What changed in meaning"
    if len(shared) == len(differences):
        return (Table("difference", title, DIFFERENCE_COLUMNS, every, rank=0, readers=NOT_IN_A_TERMINAL),)
    once = tuple(difference_row(difference, tuple(first_few(models, NAMES_SHOWN))) for difference, models in shared)
    return (Table("change", title, DIFFERENCE_COLUMNS, once, rank=0, readers=NOT_IN_A_TERMINAL),
            Table("difference", "differences, counted per model", DIFFERENCE_COLUMNS, every, counted=True,
                  readers=NOT_IN_A_TERMINAL))


def _terminal_tables(blocks: Sequence[_Block]) -> Iterator[Table]:
    """Yield a table each for the fleet, for shared differences, and for each model: one grid would be too wide.

    Consecutive rows with the same message show it once, below the last of them.
    """
    for number, (models, block) in enumerate(blocks[:BLOCKS_SHOWN]):
        tags = tuple(f"{TAGS[difference.effect]:{_TAG_WIDTH}}" for difference in block)
        title = f"{'~' if block[0].path else SIGNS[block[0].kind]} {models[0] if models else 'the fleet as a whole'}"
        if len(models) > 1:
            title = f"~ {len(models)} models: {some(models, NAMES_SHOWN)}"
        rows: list[tuple[Cell, ...]] = []
        for message, group in groupby(block, key=lambda difference: difference.message):
            alike = list(group)
            rows += [(_change(difference), (message,) if difference is alike[-1] else ()) for difference in alike]
        yield Table(f"block{number}", title, CHANGE, tuple(rows), line="{change}", signs=tags,
                    readers=frozenset({"terminal"}))


def _change(difference: Difference) -> Cell:
    """Return a difference on one line; the two sides of a list are below it."""
    old, new = values_of(difference)
    source = difference.new_source or (f"was {difference.old_source}" if difference.old_source else "")
    where = f"  ({source})" if source else ""
    if not difference.path:
        return f"{new if difference.kind == 'added' else old}{where}"
    if isinstance(difference.old, list) and isinstance(difference.new, list):
        return f"{difference.path}{where}", f"- {old}", f"+ {new}"
    return f"{difference.path}: {old} -> {new}{where}"


def _finding(shared: _Shared) -> Finding:
    difference, others = shared[0], shared[1][1:]
    level: Level = "warning" if difference.effect in ("drift", "held") else "notice"
    old, new = values_of(difference)
    details = (f"the same in {count_of(len(others), 'more model')}: {some(others, NAMES_SHOWN)}",) if others else ()
    # only `new_source`: a line number of the old file would point at the wrong line of the new one
    return Finding(level, difference.effect.upper(), difference.model or THE_FLEET,
                   f"{difference.path or THE_MODEL}: {old} -> {new}; {difference.message}", difference.new_source,
                   details)


def _shared_differences(differences: Sequence[Difference]) -> list[_Shared]:
    """Return each difference once, with the models that share it, in the order of the first model.

    Differences are shared if the same line of a file causes them.
    """
    shared: dict[object, tuple[Difference, list[str]]] = {}
    for difference in differences:
        source, key = difference.new_source, (difference.model, difference.path, difference.kind)
        shared_key: object = key if difference.model is None or not difference.path or source is None else (
            difference.path, difference.effect, difference.message, *values_of(difference),
            source.file, source.line, source.column)
        _, models = shared.setdefault(shared_key, (difference, []))
        models += [] if difference.model is None else [difference.model]
    return [(difference, tuple(models)) for difference, models in shared.values()]


def _blocks(shared: Sequence[_Shared]) -> list[_Block]:
    """Return the differences by the models that share them: the fleet and several models first, then single models."""
    by_models = grouped((models, difference) for difference, models in shared)
    return sorted(by_models.items(), key=lambda item: len(item[0]) == 1)


def revision_text(revision: Revision) -> str:
    """Return the name of a revision, followed by its commit unless the name is the commit."""
    def short(name: str) -> str:
        return short_commit(name) if _OBJECT_ID.fullmatch(name) else name

    name, commit = revision.name, revision.commit or ""
    if commit and "..." in name:
        first, _, other = name.partition("...")
        name = f"the merge base of {short(first)} and {short(other)}"
    return short(name) if not commit or commit.startswith(name) else f"{name} ({short_commit(commit)})"


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
    from fleetctl.review.compare_models import REORDERED  # a plan without differences does not need it

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


def change_tables(change: PlanChange) -> tuple[Table, Table]:
    """Return both tables. A terminal shows only the first, and names `fleetctl diff`."""
    effects = [(effect.key, KINDS[effect.kind], _counts(effect.before), _counts(effect.after), effect.message)
               for effect in change.models]
    return (
        Table("effect", f"This change alone, since {revision_text(change.base)}", EFFECT_COLUMNS, tuple(effects),
              note=f"{change_sentence(change)}.", line="{model}: {message}", limit=50,
              signs=tuple(SIGNS[effect.kind] for effect in change.models)),
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
        if (other := change.other_variant):
            of_them = f"{other} of them " if due > 1 else ""
            parts[-1] += f", {of_them}as another variant than without the change"
    return ", ".join(parts)


def _counts(counts: CountsThen | None) -> str:
    if counts is None:
        return "not in the file"
    each = ", ".join(f"{count} as {name}" for name, count in counts.variants.items())
    others = ((counts.create, f"to create ({each})" if each else "to create"), (counts.blocked, "blocked"),
              (counts.hold, "held"), (counts.drift, "drifting"), (counts.fetch, "to fetch weights"))
    return ", ".join([f"{counts.wanted} wanted", *(f"{count} {word}" for count, word in others if count)])


def difference_row(difference: Difference, models: Cell | None = None) -> tuple[Cell, ...]:
    """Return the row of a difference; `models` names the models that share it, if there are several."""
    source = str(difference.new_source or difference.old_source or "")
    return (TAGS[difference.effect], models or difference.model or THE_FLEET, difference.path or THE_MODEL,
            *values_of(difference), source, difference.message)
