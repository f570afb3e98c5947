"""Rules over updates in place: a request to send, weights to reload, and variables that are known by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.nearest import nearest
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import Raw, models, root
from fleetctl.fleetfile.rules_group import role_of
from fleetctl.fleetfile.rules_reference import INJECTED, references
from fleetctl.fleetfile.rules_weights import texts_below
from fleetctl.problem import Problem

IN_PLACE, NEW_MODEL_DIR = "inPlace", "FLEETCTL_NEW_MODEL_DIR"
KNOWN = (NEW_MODEL_DIR, *INJECTED)


def check_updates(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the problems of `update`, in the defaults and in the models, with what these get from the defaults."""
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
            yield update.problem("FL086", "no engine of rank 0 has weights that it could reload", key="mode",
                                 allowed="weights beside an engine; or mode keep or surge")


def _request(update: Raw, *, given: bool) -> Iterator[Problem]:
    if update.get("mode") == IN_PLACE and not update.get("reload") and not given:
        yield update.problem("FL085", "inPlace needs the request by which an engine reloads its weights", key="mode",
                             allowed="reload: {http: {path, method, body}} beside mode")
    for path, text in texts_below((*update.path, "reload"), update.get("reload")):
        for name in references(text):
            if name not in KNOWN:
                meant = nearest(name, KNOWN)
                yield update.document.problem("FL048", path, f"$({name}) is not set by fleetctl",
                                              allowed=", ".join(KNOWN), suggestion=f"$({meant})" if meant else None)
