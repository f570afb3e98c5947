"""What each kind of error is called: code, message, what is allowed, the nearest spelling, all in our own words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.documents.mask import is_env_value, variable_of, without_value
from fleetctl.documents.nearest import nearest
from fleetctl.documents.position import Path, path_text
from fleetctl.fleetfile import guess
from fleetctl.fleetfile.nodes import Document, MergedNode, Node
from fleetctl.fleetfile.shape import homes, keys_of, model_at
from fleetctl.problem import Problem

MAX_SHOWN = 60
_ITEMS = {"models": "a model", "workers": "a worker group", "members": "a member"}
_NAMED_BY = {"models": "key", "workers": "name"}
_EXPECTED = re.compile(r"'([^']*)'")


@dataclass(frozen=True, slots=True)
class Finding:
    """One error of pydantic's, located: `path` leads to the value (`on_key`: its key is meant), `node` is the value."""

    document: Document
    path: Path
    node: Node | None
    on_key: bool
    kind: str = ""
    message: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last key of the path, for messages: `replicas`, or `args[1]` for an item."""
        named = [part for part in self.path if isinstance(part, str)]
        last = self.path[-1] if self.path else ""
        text = f"{named[-1]}[{last}]" if isinstance(last, int) and named else str(last)
        return without_value(text) if self.variable is not None else text

    @property
    def variable(self) -> str | None:
        """The name of the environment variable this is about; "" for the whole environment, None for anything else."""
        return variable_of(self.path)

    @property
    def shown(self) -> str:
        """What was found, for a message; of an environment, which may hold secrets, no more than its kind."""
        return show(self.node) if self.variable is None else _kind(self.node)

    def problem(self, code: str, message: str, *, allowed: str | None = None, suggestion: str | None = None) -> Problem:
        """Make the problem at the place of this finding."""
        return self.document.problem(code, self.path, message, key=self.on_key, allowed=allowed, suggestion=suggestion)


def word(finding: Finding) -> Problem:
    """Return the problem a finding stands for."""
    return _WORDINGS.get(finding.kind, _unforeseen)(finding)


def show(node: Node | None) -> str:
    """Show a value in a message: scalars as written, text in quotes, anything long cut."""
    if node is None:
        return "nothing"
    if node.children is not None:
        return "a mapping" if isinstance(node.children, dict) else "a list"
    if node.value is None:
        return "nothing"
    text = node.raw if len(node.raw) <= MAX_SHOWN else node.raw[:MAX_SHOWN] + "..."
    text = "".join(char if char.isprintable() else "?" for char in text)
    return f'"{text}"' if isinstance(node.value, str) else text


def _kind(node: Node | None) -> str:
    if node is None or node.children is not None or node.value is None:
        return show(node)
    return "text" if isinstance(node.value, str) else "a number or boolean"


def _unknown_key(finding: Finding) -> Problem:
    model = model_at(finding.path[:-1])
    known = keys_of(model) if model else []
    key = str(finding.path[-1])
    meant = nearest(key, known)
    if finding.variable and meant is None:
        return _unknown_in_env(finding, ", ".join(known))
    under = [home for home in homes().get(key, ()) if home]
    elsewhere = f"; {key} belongs under {' or '.join(under)}" if under and meant is None else ""
    return finding.problem("FL020", f'unknown key "{_cut(key)}"{elsewhere}', allowed=", ".join(known), suggestion=meant)


def _unknown_in_env(finding: Finding, known: str) -> Problem:
    # where a reference is expected, the key itself may be a secret that was put in braces
    found = finding.problem("FL020", f"unknown key in the environment value {finding.variable}", allowed=known)
    return replace(found, path=path_text(finding.path[:-1]))


def _missing(finding: Finding) -> Problem:
    missing = finding.path[-1]
    above = finding.path[:-1]
    owner = next((part for part in reversed(above) if isinstance(part, str)), None)
    where = "the document" if owner is None else _ITEMS.get(owner, owner)
    if is_env_value(above):
        where = f"the environment value {finding.variable}"
    new = _new_in_overlay(finding, owner, above)
    if new is None:
        return finding.problem("FL021", f'{where} needs the key "{missing}"')
    name, others = new
    return finding.problem("FL021", f'{where} needs the key "{missing}", and no base has "{_cut(name)}"',
                           suggestion=nearest(name, others))


def _new_in_overlay(finding: Finding, owner: str | None, above: Path) -> tuple[str, list[str]] | None:
    """Return the name of an item that only the last of several merged files has, and the names beside it."""
    key, index = _NAMED_BY.get(owner or ""), above[-1] if above else None
    named = finding.document.node(above[:-1]) if key and isinstance(index, int) else None
    if key is None or index is None or not isinstance(named, MergedNode):
        return None
    if named.sources[index] is not finding.document.source or isinstance(named.child(index), MergedNode):
        return None
    names = [item.get(key) if isinstance(item, dict) else None for item in named.value]
    name = names.pop(int(index))
    return (name, [other for other in names if isinstance(other, str)]) if isinstance(name, str) else None


def _wrong_type(finding: Finding) -> Problem:
    node, path = finding.node, finding.path
    if is_env_value(path):
        return _env_value(finding)
    expected, suggestion = _EXPECTATIONS[finding.kind](finding)
    if path[-2:] == ("placement", "spread"):
        expected, suggestion = "a label key, or a mapping with label and maxPerValue", None
    if node is not None and node.value is None:
        return finding.problem("FL022", f"{finding.name} is empty; give it a value or remove the key", allowed=expected)
    return finding.problem("FL022", f"{finding.name} is {finding.shown}, not {expected}", suggestion=suggestion)


def _env_value(finding: Finding) -> Problem:
    # the value itself may be a secret, so the message names its kind only
    node = finding.node
    empty = node is None or node.value is None
    kind = "empty" if empty else "a list" if node and node.children is not None else f"{finding.shown}, not text"
    return finding.problem("FL032", f"the environment value {finding.name} is {kind}",
                           allowed='text in quotes, such as "1", or {fromNode: NAME}')


def _expect_text(finding: Finding) -> tuple[str, str | None]:
    node = finding.node
    quotable = (node is not None and node.children is None and 0 < len(node.raw) <= MAX_SHOWN
                and finding.variable is None)
    return "text", f'"{node.raw}"' if node is not None and quotable else None


def _expect_bool(finding: Finding) -> tuple[str, str | None]:
    return "true or false", guess.bool_meant(finding.node.raw) if finding.node else None


def _expect_integer(finding: Finding) -> tuple[str, str | None]:
    node = finding.node
    quoted = node is not None and isinstance(node.value, str) and re.fullmatch(r"-?[0-9]+", node.raw)
    return "a whole number", node.raw if node is not None and quoted else None


def _expect_mapping(finding: Finding) -> tuple[str, str | None]:
    model = model_at(finding.path)
    keys = f" with {', '.join(keys_of(model))}" if model else ""
    return f"a mapping{keys}", None


def _out_of_range(finding: Finding) -> Problem:
    bounds = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
    allowed = " and ".join(f"{words} {finding.context[key]}" for key, words in bounds.items() if key in finding.context)
    return finding.problem("FL023", f"{finding.name} is {finding.shown}, out of range", allowed=allowed or None)


def _length(finding: Finding) -> Problem:
    least, most = finding.context.get("min_length"), finding.context.get("max_length")
    if least is not None:
        return finding.problem("FL023", f"{finding.name} may not be empty")
    return finding.problem("FL023", f"{finding.name} has too many items", allowed=f"at most {most}")


def _literal(finding: Finding) -> Problem:
    known = _EXPECTED.findall(str(finding.context.get("expected", "")))
    raw = finding.node.raw if finding.node else ""
    return finding.problem("FL024", f"{finding.name} is {finding.shown}", allowed=", ".join(known),
                           suggestion=nearest(raw, known) if raw else None)


def _pattern(finding: Finding) -> Problem:
    if finding.context.get("pattern") == "^/":
        return finding.problem("FL035", f"{finding.name} is {finding.shown}", allowed="a path that begins with /")
    meant = guess.dns_label_meant(finding.node.raw) if finding.node else None
    return finding.problem("FL029", f"{finding.name} is {finding.shown}, not a DNS label", suggestion=meant,
                           allowed="lower-case letters, digits and inner hyphens, at most 63 characters")


def _own(code: str, meant: Callable[[str], str | None] | None = None) -> Callable[[Finding], Problem]:
    """Word an error raised by our own models: they say what is found and allowed, the file says how it is written."""

    def wording(finding: Finding) -> Problem:
        raw = finding.name if finding.on_key else finding.node.raw if finding.node else ""
        value = f"the value of {finding.variable}" if finding.variable else finding.shown
        shown = f'"{_cut(raw)}"' if finding.on_key else value
        suggestion = meant(raw) if meant and raw else None
        found, allowed = str(finding.context.get("found", "")), str(finding.context.get("allowed", ""))
        if finding.message == f"{found} is not {allowed}":
            return finding.problem(code, f"{finding.name} is {shown}, not {allowed}", suggestion=suggestion)
        message = finding.message.replace(found, shown, 1)
        return finding.problem(code, message, allowed=allowed or None, suggestion=suggestion)

    return wording


def _absurd(finding: Finding) -> Problem:
    return finding.problem("FL023", f"{finding.name} is {finding.shown}, out of range",
                           allowed=finding.context.get("allowed"))


def _probe_kind(finding: Finding) -> Problem:
    found = finding.context.get("found")
    return finding.problem("FL034", f"{finding.name} has {'no kind' if found == 'none' else found}",
                           allowed="exactly one of http, tcp and exec")


def _unforeseen(finding: Finding) -> Problem:
    name = finding.name or "the document"
    return finding.problem("FL022", f"{name} is {finding.shown}, which cannot be used here")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


_EXPECTATIONS: dict[str, Callable[[Finding], tuple[str, str | None]]] = {
    "string_type": _expect_text,
    "bool_type": _expect_bool,
    "int_type": _expect_integer,
    "int_from_float": _expect_integer,
    "list_type": lambda _: ("a list", None),
    "dict_type": _expect_mapping,
    "model_type": _expect_mapping,
    "model_attributes_type": _expect_mapping,
}

_WORDINGS: dict[str, Callable[[Finding], Problem]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    **dict.fromkeys(_EXPECTATIONS, _wrong_type),
    **dict.fromkeys(("greater_than_equal", "less_than_equal", "greater_than", "less_than"), _out_of_range),
    **dict.fromkeys(("too_short", "too_long", "string_too_short", "string_too_long"), _length),
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
    "bad_bytes": _own("FL025", guess.bytes_meant),
    "bad_gpus": _own("FL025", guess.number_meant),
    "bad_cpus": _own("FL025", guess.number_meant),
    "absurd_quantity": _absurd,
    "share_too_fine": _own("FL031"),
    "gpus_not_whole": _own("FL031"),
    "bad_duration": _own("FL026", guess.duration_meant),
    "bad_selector": _own("FL027", guess.selector_meant),
    "bad_label_key": _own("FL028"),
    "bad_model_key": _own("FL030"),
    "bad_env_name": _own("FL033"),
    "reserved_env_name": _own("FL033"),
    "nul_in_text": _own("FL035"),
    "probe_kind": _probe_kind,
}
