"""Real plans of every kind of outcome, made by the planner over small worlds."""

from __future__ import annotations

from functools import cache
from typing import Any

from fleetctl.documents.difference import Revision
from fleetctl.documents.plan import GitFacts, Plan
from fleetctl.fleetfile.load import inspect_fleet, load_fleet
from fleetctl.planner.options import PlanOptions
from fleetctl.review.compare import differences, written
from fleetctl.review.inputs import Side
from fleetctl.workflow.base_plan import change_caused, marked_new, with_change
from tests.small_plans import small_plan

MODEL = """\
  - key: {key}
    replicas: {replicas}
    workers:
    - name: main
      members: [{{resources: {{gpus: {gpus}}}, engine: {{command: [serve], env: {{TOKEN: hush-hush}}}}}}]
"""


def fleet(*models: tuple[str, int, int], policy: str = "{}") -> str:
    """A fleet of models, each with its key, replicas and GPUs."""
    text = "".join(MODEL.format(key=key, replicas=replicas, gpus=gpus) for key, replicas, gpus in models)
    return (f"apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {{name: lab}}\nspec:\n  policy: {policy}\n"
            f"  models:\n{text or '  []'}")


def live(model: str, number: int, node: str, gpus: int, text: str | None = None, **more: Any) -> dict[str, Any]:
    """A running replica; `text` = the fleet file it was started from."""
    hashes = {one.key: one.spec_hash for one in load_fleet(["-"], stdin=text.encode).models} if text else {}
    return {"model": model, "replicaId": number, "fleet": "lab", "specHash": hashes.get(model, "older"),
            "members": [{"group": "main", "role": "Standalone", "nodeId": f"id-{node}", "gpus": gpus * 10_000}], **more}


def _changed(base: str, head: str, *nodes: str) -> Plan:
    sides = [inspect_fleet(["-"], stdin=text.encode) for text in (base, head)]
    named = [Side(Revision(name=name), one.fleet, one.documents)
             for name, one in zip(("main", "now"), sides, strict=True)]
    found = list(differences(written(named[0]), written(named[1])))
    before, after = small_plan(*nodes, fleet=base), small_plan(*nodes, fleet=head)
    after = after.model_copy(update={"file_warnings": marked_new(after.file_warnings, sides[0].problems)})
    return with_change(after, change_caused(before, after, found, named[0].revision))


def _everything() -> Plan:
    text = fleet(("org/blocked", 2, 8), ("org/new", 2, 2), ("org/held", 1, 1), ("org/drift", 1, 1), ("org/lost", 1, 1),
                 ("org/well", 1, 1), policy="{maxNewReplicas: 2, protectedModels: [org/new]}")
    git = GitFacts(commit="1a2b3c4d5e6f", branch="main", dirty=True)
    return small_plan("a", "b", fleet=text, dead=["gone"], git=git, replicas=[
        live("org/held", 0, "a", 1, text), live("org/held", 1, "a", 1, text), live("org/drift", 0, "a", 1),
        live("org/lost", 0, "gone", 1, text), live("org/well", 0, "b", 1, text), live("org/stranger", 0, "b", 1),
        live("org/theirs", 4, "b", 1, fleet="other")])


@cache
def cases() -> dict[str, Plan]:
    """One plan per kind of outcome, by its name."""
    well = fleet(("org/one", 1, 1))
    two = fleet(("org/one", 3, 4), policy="{maxNewReplicas: 1}")
    return {
        "nothing to do": small_plan("a", fleet=well, replicas=[live("org/one", 0, "a", 1, well)]),
        "many with nothing to do": small_plan("a", fleet=fleet(*((f"org/m{number}", 0, 1) for number in range(30)))),
        "create": small_plan("a", fleet=fleet(("org/one", 2, 1), ("org/two", 3, 1))),
        "blocked": small_plan("a", fleet=fleet(("org/one", 2, 16))),
        "partial": small_plan("a", "b", fleet=fleet(("org/one", 3, 8), ("org/two", 1, 1))),
        "no nodes": small_plan(fleet=fleet(("org/one", 2, 1))),
        "hold": small_plan("a", fleet=well, replicas=[live("org/one", number, "a", 1, well) for number in range(3)]),
        "drift": small_plan("a", fleet=well, replicas=[live("org/one", 0, "a", 1)]),
        "starting": small_plan("a", fleet=fleet(("org/one", 2, 1), ("org/two", 2, 1)), replicas=[
            live("org/one", 0, "a", 1, well, state="RESTARTING", restarts=3),
            live("org/one", 1, "a", 1, well, state="PENDING_CREATION"),
            live("org/two", 0, "a", 1, state="RESTARTING")]),
        "lost": small_plan("a", fleet=well, dead=["gone"], replicas=[live("org/one", 0, "gone", 1, well)]),
        "unmanaged": small_plan("a", fleet=well, replicas=[
            live("org/other", 0, "a", 1), live("org/x", 1, "a", 1, fleet="them")]),
        "policy refuses": small_plan("a", "b", fleet=two),
        "policy is lifted": small_plan("a", "b", fleet=two, options=PlanOptions(force=True)),
        "policy refuses and blocked": small_plan("a", fleet=two),
        "change": _changed(fleet(("org/one", 1, 4)),
                           fleet(("org/two", 1, 6), ("org/one", 1, 8), ("org/new", 1, 1)), "a"),
        "everything": _everything(),
    }
