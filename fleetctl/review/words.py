"""Sentences about whole models: what came, what went, and what looks like a new name for the same thing."""

from __future__ import annotations

from fleetctl.documents.quantity import SHARE, count_of, format_share
from fleetctl.fleetfile.resolved import ResolvedModel


def gpus_of(model: ResolvedModel) -> int:
    """Return the GPUs one replica asks for, in 1/10000; memory of cards asked for alone is not in it."""
    return sum(group.copies * (member.count or 1) * member.resources.gpus
               for group in model.workers for member in group.members)


def shape_words(model: ResolvedModel) -> str:
    """Say how many replicas are wanted and what one of them takes."""
    gpus = gpus_of(model)
    each = f" of {format_share(gpus)} {'GPU' if gpus == SHARE else 'GPUs'}" if gpus else ""
    return f"{count_of(model.replicas, 'replica')}{each}"


def added_words(model: ResolvedModel, former: str | None) -> str:
    """Say what a model that came does."""
    does = f"up to {count_of(model.replicas, 'replica')} may be created" if model.replicas else "nothing is created"
    if former is not None:
        return f"looks like a new name for {former}, with the same spec, but is a new model: {does} beside those of it"
    return f"a new model{'' if model.replicas else ' without a target'}: {does}"


def removed_words(latter: str | None) -> str:
    """Say what becomes of the replicas of a model that went."""
    kept = "its replicas become unmanaged, run on and keep their room; nothing is removed"
    return kept if latter is None else f"{kept}; looks like it is called {latter} now"
