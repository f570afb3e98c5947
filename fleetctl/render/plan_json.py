"""The plan as JSON: masked for every eye, whole only for the file that `apply` reads."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.documents.plan import Plan
from fleetctl.render.mask import mask_env


def render_plan_json(plan: Plan) -> str:
    """Return the plan document with env values masked; `"masked": true` says so, and `apply` refuses such a document.

    Where there was nothing to mask the bytes are those of the saved document.
    """
    document, masked = mask_env(_document(plan))
    return _text({**document, "masked": True} if masked else document)


def saved_plan_json(plan: Plan) -> str:
    """Return the whole plan document, env values included: for a file only its owner can read."""
    return _text(_document(plan))


def _document(plan: Plan) -> dict[str, Any]:
    return plan.model_dump(mode="json", by_alias=True)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
