"""Reads what models are as numbers, from `model` of each model, and warns of replicas that no card can hold.

A description is a file beside the fleet file, and is read as bases and house rules are: inside the checkout only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from fleetctl.documents.fleet import FleetDocument, Model, Numbers
from fleetctl.documents.model import Model as Description
from fleetctl.documents.position import FleetSource
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.extends import NamedFile
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.nodes import Document
from fleetctl.problem import Problem

MOST_BYTES = 1 << 20
"""The most bytes of a description; one of a thousand unequal layers has 200,000."""
LARGEST_CARD = 432 << 30
"""The memory of the largest cards there are: AMD's MI455X."""


@dataclass(slots=True)
class KnownModels:
    """The descriptions of a fleet's models by model key, the files they are from, and the problems of these."""

    by_key: dict[str, Description] = field(default_factory=dict)
    files: list[FleetSource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_numbers(checked: Sequence[tuple[Document, FleetDocument]], tree: FileTree) -> KnownModels:
    """Return what is known of the models of documents that passed every rule."""
    known = KnownModels()
    read: dict[str, Description] = {}
    for document, fleet in checked:
        for index, model in enumerate(fleet.spec.models):
            if model.model is None:
                continue
            path = ("spec", "models", index, "model")
            description = _described(document, (*path, "description"), model.model, tree, read, known)
            if description is None:
                continue
            known.by_key[model.key] = description
            known.problems += _too_large(document, path, model, description)
    return known


def _described(document: Document, path: tuple[str | int, ...], numbers: Numbers, tree: FileTree,
               read: dict[str, Description], known: KnownModels) -> Description | None:
    """Return the description of one model; None if it cannot be read, which is a problem of `known`."""
    from fleetctl.sizing.groups import in_short

    if numbers.description is None:
        return in_short(numbers)
    name = NamedFile(document, path, numbers.description, "FL091")
    try:
        identity = name.find(tree, document.source.file)
        if identity not in read:
            source = name.read(tree, MOST_BYTES)
            read[identity] = _parsed(name, source.data)
            known.files.append(source.about)
        return read[identity]
    except FleetFileError as error:
        known.problems += error.problems
        return None


def _parsed(name: NamedFile, data: bytes) -> Description:
    """Return a description; raises FleetFileError."""
    try:
        written = json.loads(data)
    except (ValueError, RecursionError):
        raise name.refused(f"{name.file} is not JSON", allowed="a file that `fleetctl model describe` wrote") from None
    try:
        return Description.model_validate(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise name.refused(f"{name.file}: {where + ': ' if where else ''}{first['msg']}",
                           allowed="a file that `fleetctl model describe` wrote") from None


def _too_large(document: Document, path: tuple[str | int, ...], model: Model, description: Description
               ) -> Iterator[Problem]:
    """Warn of each group whose cards cannot hold what the engine certainly loads: no card is that large, or its
    members claim less of each card.
    """
    from fleetctl.sizing.fit import CardKind, judge
    from fleetctl.sizing.groups import cards_of, first_member, line_of

    for group in model.workers:
        cards, claimed = cards_of(group), first_member(group).resources.vram
        if not cards:
            continue
        card = CardKind("the claim" if claimed else "the largest card", claimed or LARGEST_CARD, 8, 8)
        fit = judge(description, line_of(group, model.key), cards=cards, card=card)
        if fit.kind == "certain":
            yield document.problem("FL063", path, f"{group.name}: {fit.text}", key=True,
                                   allowed="more cards in resources.gpus and in the engine's flags")

