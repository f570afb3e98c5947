"""Hides the values of engine environments: a plan that is shown must not spread what a fleet file keeps to itself."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.mask import masked


def mask_env(document: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a plan document with every env value replaced by `***`, and whether that changed anything."""
    if "specs" not in document:
        return document, False
    specs = masked(document["specs"])
    return {**document, "specs": specs}, specs != document["specs"]
