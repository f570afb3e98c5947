"""Rules over weights and their updates in place: known variables, one part per rank, a reload request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from fleetctl.documents.nearest import nearest
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import count_of
from fleetctl.documents.weights import regex_error
from fleetctl.fleetfile.messages import cut
from fleetctl.fleetfile.nodes import Document, Value
from fleetctl.fleetfile.raw import Raw, models, root, shapes_of
from fleetctl.fleetfile.rules_group import members_per_copy, role_of
from fleetctl.fleetfile.rules_reference import INJECTED, all_references, references
from fleetctl.problem import Problem

KNOWN = ("FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK",
         "FLEETCTL_GROUP_SIZE")
"""The variables known to a plan; the others are only known when the engine starts, after its weights are fetched."""
KNOWN_AT_UPDATE = ("FLEETCTL_NEW_MODEL_DIR", *INJECTED)
MAX_REGEX_COST = 50_000
_BEYOND_ASCII = re.compile(r"\\[uUN]")
IN_PLACE, BEFORE_WEIGHTS = "inPlace", "known before the weights are fetched"


def check_weights(group: Raw, member: Raw) -> Iterator[Problem]:
    """Yield the problems of one member's weights beyond the types of its values."""
    weights = member.child("weights")
    for path, text in texts_below((*weights.path, "from"), weights.get("from")):
        yield from _unknown(weights, path, references(text), KNOWN, BEFORE_WEIGHTS)
    for path, text in texts_below((*weights.path, "view"), weights.get("view")):
        yield from _unknown(weights, path, all_references(text), KNOWN, BEFORE_WEIGHTS)
    parts, size = weights.child("view").child("shard").get("of"), members_per_copy(group)
    if isinstance(parts, int) and not isinstance(parts, bool) and 0 < parts != size:
        yield weights.child("view").child("shard").problem(
            "FL082", f"{count_of(parts, 'part')} for a group of {count_of(size, 'member')}", key="of",
            allowed=f"{size}, or no key: the default is the number of members")


def check_regexes(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the texts in views that are not regular expressions. Each is compiled once, as long as all cost little."""
    errors: dict[str, str | None] = {}
    left = MAX_REGEX_COST
    for view in (member.child("weights").child("view") for document in documents
                 for model in (*models(document), *shapes_of(document))
                 for group in model.items("workers") for member in group.items("members")):
        for owner, key in ((view, "tensors"), *((rule, "match") for rule in view.child("shard").items("rules"))):
            text = owner.text(key)
            if text is None:
                continue
            if text not in errors:
                # sets beyond ASCII are compiled character by character
                left -= len(text) * (1 if text.isascii() and not _BEYOND_ASCII.search(text) else 30)
                if left < 0:
                    yield owner.problem("FL081", "the regular expressions of this fleet take too long to read", key=key,
                                        allowed=f"at most {MAX_REGEX_COST} characters in all, of ASCII")
                    return
                errors[text] = regex_error(text)
            if error := errors[text]:
                yield owner.problem("FL081", f"{_shown(text)} is not a regular expression: {error}", key=key,
                                    allowed="Python's syntax; it is searched for in tensor names")


def _shown(text: str) -> str:
    return f'"{"".join(char if char.isprintable() else "?" for char in cut(text))}"'


def _unknown(owner: Raw, path: Path, names: Iterable[str], known: Sequence[str], how: str) -> Iterator[Problem]:
    for name in names:
        if name not in known:
            meant = nearest(name, known)
            yield owner.document.problem("FL048", path, f"$({name}) is not {how}", allowed=", ".join(known),
                                         suggestion=f"$({meant})" if meant else None)


def texts_below(path: Path, value: Value) -> Iterator[tuple[Path, str]]:
    """Yield all texts in a value of any type, each with its path."""
    if isinstance(value, str):
        yield path, value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield from texts_below((*path, key), below)


def check_updates(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the problems of `update`, in the defaults and in the models, which inherit from the defaults."""
    defaults = [root(document).child("spec").child("defaults").child("update") for document in documents]
    given = any(update.get("reload") for update in defaults)
    for update in defaults:
        yield from _request(update, given=given)
    for model in (one for document in documents for one in models(document)):
        update = model.child("update")
        yield from _request(update, given=given)
        leaders = [member for group in model.items("workers") for member in group.items("members")
                   if role_of(member) != "Worker"]
        if update.get("mode") == IN_PLACE and leaders and not any(member.get("weights") for member in leaders):
            yield update.problem("FL086", "inPlace needs weights, and no member of rank 0 has any", key="mode",
                                 allowed="weights in a member of rank 0, or mode keep or surge")


def _request(update: Raw, *, given: bool) -> Iterator[Problem]:
    if update.get("mode") == IN_PLACE and not update.get("reload") and not given:
        yield update.problem("FL085", "inPlace needs the request that makes an engine reload its weights", key="mode",
                             allowed="reload: {http: {path, method, body}} beside mode")
    for path, text in texts_below((*update.path, "reload"), update.get("reload")):
        yield from _unknown(update, path, references(text), KNOWN_AT_UPDATE, "set by fleetctl")
