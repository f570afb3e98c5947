"""Reads what models are as numbers, from `model` of each model, and warns of replicas that no card can hold.

A description is a file beside the fleet file, and is read as bases and house rules are: inside the checkout only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from fleetctl.documents.fleet import FleetDocument, Model, Numbers, Variant, WorkerGroup
from fleetctl.documents.model import Description
from fleetctl.documents.position import FleetSource, Path
from fleetctl.documents.quantity import AUTO, LARGEST_CARD
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.extends import NamedFile
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.nodes import Document
from fleetctl.problem import Problem

MOST_BYTES = 1 << 20
"""The most bytes of a description; one of a thousand unequal layers has 200,000."""


@dataclass(slots=True)
class KnownModels:
    """The descriptions of a fleet's models by model key and name of the variant, "" for a model without variants; the
    files they are from, and the problems of these.
    """

    by_name: dict[tuple[str, str], Description] = field(default_factory=dict)
    files: list[FleetSource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def description(self, model: Model, way: Model | Variant) -> Description | None:
        """Return what is known of one way to run a model."""
        return self.by_name.get(_name(model, way))


def read_numbers(checked: Sequence[tuple[Document, FleetDocument]], tree: FileTree) -> KnownModels:
    """Return what is known of the models of documents that passed every rule."""
    known = KnownModels()
    read: dict[str, Description] = {}
    for document, fleet in checked:
        for index, model in enumerate(fleet.spec.models):
            of_model: Path = ("spec", "models", index)
            for place, way in enumerate(model.alternatives):
                own: Path = (*of_model, "variants", place) if model.variants else of_model
                _read_one(document, own, model, way, tree, read, known)
    return known


def _read_one(document: Document, at: Path, model: Model, way: Model | Variant, tree: FileTree,
              read: dict[str, Description], known: KnownModels) -> None:
    """Add what is known of one way to run a model, at `at`, to `known`."""
    numbers = way.model or model.model
    for place, group in enumerate(way.workers):
        for number, member in enumerate(group.members):
            if member.resources.vram == AUTO:
                of_member: Path = (*at, "workers", place, "members", number)
                known.problems += _not_estimated(document, of_member, model.key, numbers, group)
    if numbers is None:
        return
    path: Path = (*(at if way.model else at[:3]), "model")
    description = _described(document, (*path, "description"), numbers, tree, read, known)
    if description is None:
        return
    known.by_name[_name(model, way)] = description
    # a variant that is too large is the problem, even if the numbers are the model's
    known.problems += _too_large(document, path if way.model else at, model.key, way.workers, description)


def _name(model: Model, way: Model | Variant) -> tuple[str, str]:
    return model.key, way.name if isinstance(way, Variant) else ""


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
            read[identity] = parse_description(name.file, source.data)
            known.files.append(source.about)
        return read[identity]
    except ValueError as error:
        known.problems += name.refused(str(error), allowed="a file that `fleetctl model describe` wrote").problems
        return None
    except FleetFileError as error:
        known.problems += error.problems
        return None


def parse_description(file: str, data: bytes) -> Description:
    """Return the description in `data`; raises ValueError, whose message begins with the name `file`."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"{file} is larger than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not JSON") from None
    if not isinstance(found, dict) or found.get("kind") != "Model":
        raise ValueError(f"{file} is not the description of a model")
    try:
        return Description.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = {"missing": " is missing", "extra_forbidden": " is not a key of a description"}.get(
            first["type"], f": {first['msg']}")
        raise ValueError(f"{file}: {where}{why}" if where else f"{file}{why}") from None


def _not_estimated(document: Document, path: Path, key: str, numbers: Numbers | None, group: WorkerGroup
                   ) -> Iterator[Problem]:
    """Yield why there is no estimate for the member at `path` to claim."""
    from fleetctl.sizing.groups import line_of

    path = (*path, "resources", "vram")
    if numbers is None:
        yield document.problem("FL092", path, "vram: auto is an estimate, and nothing is known of the model",
                               allowed="model, such as {description: models/NAME.json}; or a quantity such as 16Gi")
    elif line_of(group, key).engine is None:
        yield document.problem("FL092", path, "vram: auto is an estimate, and the memory of this engine is not known",
                               allowed="vLLM, SGLang and llama.cpp, without a wrapper; or a quantity such as 16Gi")


def _too_large(document: Document, path: Path, key: str, workers: Sequence[WorkerGroup], description: Description
               ) -> Iterator[Problem]:
    """Warn of each group whose cards cannot hold what the engine certainly loads: no card is that large, or its
    members claim less of each card.
    """
    from fleetctl.sizing.fit import LENGTH_FLAGS, CardKind, judge
    from fleetctl.sizing.groups import cards_of, first_member, line_of

    for group in workers:
        cards, claimed = cards_of(group), first_member(group).resources.vram
        claimed = 0 if claimed == AUTO else claimed
        if not cards:
            continue
        card = CardKind("the claim" if claimed else "the largest card there is", claimed or LARGEST_CARD, 8, 8)
        line = line_of(group, key)
        fit = judge(description, line, cards=cards, card=card)
        if fit.kind == "certain":
            ways = [*(["a larger resources.vram"] if claimed and fit.need.bound <= LARGEST_CARD else []),
                    *([f"a smaller {LENGTH_FLAGS[line.engine]}"] if fit.need.bound_context and line.engine else []),
                    "more cards in resources.gpus and in the engine's flags"]
            yield document.problem("FL063", path, f"{group.name}: {fit.text}", key=True, allowed=", or ".join(ways))

