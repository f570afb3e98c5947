"""House rules: a team's own JSON Schemas for the rendered fleet. A violation is a problem at the offending value.

`spec.policy.schemas` names the files. A rule sees the fleet as its files write it, with bases merged and
`spec.defaults` merged into each model.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.fleet import MAX_SCHEMAS
from fleetctl.documents.position import FleetSource
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.file_tree import FileTree
from fleetctl.fleetfile.merge import join, with_defaults
from fleetctl.fleetfile.named_file import NamedFile
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import root
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.problem import Problem

MAX_RULES_BYTES = 1 << 20


def check_house_rules(documents: Sequence[Document], tree: FileTree) -> tuple[list[FleetSource], list[Problem]]:
    """Check a whole fleet against its house rules; return the schema files, and all problems of schemas and fleet."""
    named = [(NamedFile(document, path, text, "FL037"), document.source.file) for document in documents
             for path, text in root(document).child("spec").child("policy").texts("schemas") if text]
    if not named:
        return [], []
    from fleetctl.fleetfile.rule_schema import problems_of_rules  # only for a fleet with rules

    fleet = with_defaults(join(documents))
    sources: list[SourceBytes] = []
    problems: list[Problem] = []
    for name, given in named[:MAX_SCHEMAS]:
        try:
            name.find(tree, given)
            sources.append(name.read(tree, MAX_RULES_BYTES))
        except FleetFileError as error:
            problems += error.problems
    return [source.about for source in sources], [*problems, *problems_of_rules(fleet, sources)]
