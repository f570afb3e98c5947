"""Imports NDIF's `models:` list, which has no engine commands: NDIF serves models with Python code of its own.

NDIF reads this list leniently: it drops unknown keys, takes the last of two equal models and turns 0 replicas into one.
Here each of these is reported. Sizes are padded as NDIF pads them, and a card is shared if NDIF shares it.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import Any

from fleetctl.importers.draft import PLACEHOLDER, Draft, one_group
from fleetctl.importers.reading import Reading, is_duplicate

PADDING_FACTOR, PADDING_BIAS = Decimal("0.15"), Decimal(500 << 20)
"""NDIF's defaults: a model with n bytes of weights gets n x (1 + factor) + bias, divided over its cards."""

_MIB = 1 << 20
_LOST = {
    "dtype": "set it in the engine's command",
    "trusted": "set it in the engine's command",
    "actor_class": "the model is served by the engine's command here",
    "envoy_class": "the model is served by the engine's command here",
    "execution_timeout_seconds": "the engine handles requests",
    "max_tp": "gpus sets the number of cards",
}


def read_models(reading: Reading, draft: Draft) -> None:
    """Add every model of a list to the draft; of duplicates the last, as in NDIF."""
    listed = reading.entries("models")
    keys = [_key(one) for one in listed]
    last = {key: number for number, key in enumerate(keys)}
    for number, (one, key) in enumerate(zip(listed, keys, strict=True)):
        if key is None:
            one.lose(None, "no checkpoint: the model is unknown")
        elif last[key] != number:
            one.lose(None, f"{key} is listed again below, and NDIF takes the last")
        elif not is_duplicate(one, key, draft):
            draft.add(_model(one.goes_to(key), key), one.place)


def _key(one: Reading) -> str | None:
    """Return the model key: the checkpoint, with its revision if there is one. In NDIF both identify a model."""
    if not one.is_mapping:
        return one.value if isinstance(one.value, str) and one.value else None
    checkpoint, revision = one.peek("checkpoint"), one.written("revision")
    if not isinstance(checkpoint, str) or not checkpoint:
        return None
    return f"{checkpoint}@{revision}" if revision else checkpoint


def _model(one: Reading, key: str) -> dict[str, Any]:
    if isinstance(one.value, str):
        one.take()
    one.skip("checkpoint")
    one.note(None, "NDIF names no engine: write the command that serves the model", "todo")
    if one.written("revision"):
        one.skip("revision")
        one.note("revision", f"part of the model key {key}, as in NDIF: set it in the engine's command, too", "todo")
    else:
        one.text("revision")
    member = {"resources": _resources(one), "engine": {"command": [PLACEHOLDER]}}
    replicas = one.whole("replicas")
    if replicas is not None and replicas < 1:
        one.note("replicas", f"{replicas} replicas: NDIF starts one anyway, so 1 is written", "todo")
    for pinned in ("pinned", "dedicated"):
        if one.flag(pinned):
            one.note(pinned, "a plan never evicts anything to make room, so every model is pinned", "changed")
    if one.text("model_key") is not None:
        one.note("model_key", "NDIF's own key; here the checkpoint is the key", "lost")
    one.lose_each(_LOST)
    return {"key": key, "replicas": max(1, replicas or 1), "workers": one_group([member])}


def _resources(one: Reading) -> dict[str, Any]:
    """Return cards and VRAM, as far as the list has them; NDIF measures the rest itself."""
    gpus, padded = one.natural("gpus"), _padded_bytes(one)
    if padded is None:
        one.note("gpus" if gpus else None, "NDIF measures the model itself: add the vram it needs on each card" + (
            "" if gpus else ", and check gpus, which is 1 here"), "todo")
        return {"gpus": gpus or 1}
    if gpus is not None and gpus > 1:
        one.note("gpus", f"NDIF takes a share of each of the {gpus} cards; here they are whole cards", "lost")
        return {"gpus": gpus, "vram": _mebibytes(padded, gpus)}
    if gpus is None:
        one.note("size_bytes", "written as a share of one card: set gpus if the model needs several", "todo")
    return {"vram": _mebibytes(padded, 1)}


def _padded_bytes(one: Reading) -> int | None:
    size, factor, bias = one.whole("size_bytes"), one.amount("padding_factor"), one.amount("padding_bias")
    if size is None:
        for name in ("padding_factor", "padding_bias"):
            if name in one:
                one.note(name, "pads a size that NDIF measures itself", "lost")
        return None
    one.note("size_bytes", f"written as vram: {size} bytes with NDIF's padding, divided over the cards", "changed")
    for name, written in (("padding_factor", factor), ("padding_bias", bias)):
        if isinstance(written, str):
            one.lose(name, "not read: expected a number")
    padded = size * (1 + _decimal(factor, PADDING_FACTOR)) + _decimal(bias, PADDING_BIAS)
    return int(padded.to_integral_value(rounding=ROUND_CEILING))


def _decimal(written: str | float | None, default: Decimal) -> Decimal:
    return Decimal(str(written)) if isinstance(written, (int, float)) else default


def _mebibytes(count: int, cards: int) -> str:
    return f"{-(-count // (cards * _MIB))}Mi"
