"""What the shell offers for a model key: the keys of the fleet files named so far on the command line.

The shell calls this at every press of Tab, so it never raises, never reads standard input and never asks the cluster.
"""

from __future__ import annotations

import typer


def complete_model_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the model keys that begin with `incomplete`; none where the files cannot be read."""
    try:
        sources = [source for source in ctx.params.get("files") or () if source != "-"]
        return [key for key in _keys(sources) if key.startswith(incomplete)]
    except Exception:  # noqa: BLE001  a broken file must not break the shell
        return []


def _keys(sources: list[str]) -> list[str]:
    if not sources:
        return []
    from fleetctl.spec.load import load_fleet

    return [model.key for model in load_fleet(sources).models]
