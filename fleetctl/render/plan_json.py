"""The plan as JSON: masked for people and programs, unmasked only for the file that `apply` reads."""

from __future__ import annotations

from fleetctl.collector import collector_paused
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.mask import masked
from fleetctl.documents.plan import MaskedPlan, Plan


def render_plan_json(plan: Plan) -> str:
    """Return the plan document with env values masked, marked by `"masked": true`; `apply` refuses such a document.

    A plan whose drift lists its changes, which are for readers only, is marked too. Without either the bytes are those
    of the saved document.
    """
    specs = masked(plan.specs)
    actions = [one.model_copy(update={"reload": one.reload.model_copy(update={
        "requests": [masked(request, ("reload", "http")) for request in one.reload.requests]})}) if one.reload else one
        for one in plan.actions]
    if specs == plan.specs and actions == plan.actions and all(drift.changes is None for drift in plan.drift):
        return saved_plan_json(plan)
    return saved_plan_json(MaskedPlan.model_construct(**{**dict(plan), "specs": specs, "actions": actions}))


def saved_plan_json(plan: Plan) -> str:
    """Return the complete plan document, including env values, for a file that only its owner can read."""
    with collector_paused():
        return indented_json(plan)
