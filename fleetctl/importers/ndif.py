"""Imports NDIF's `models:` list, which has no engine commands: NDIF serves models with Python code of its own.

NDIF reads this list leniently: it drops unknown keys, takes the last of two equal models and turns 0 replicas into one.
Here each of these is reported. Sizes are padded as NDIF pads them, and a card is shared if NDIF shares it.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import Any

from fleetctl.documents.fleet import WEIGHT_BITS
from fleetctl.importers.draft import PLACEHOLDER, Draft, one_group
from fleetctl.importers.reading import Reading, is_duplicate

PADDING_FACTOR, PADDING_BIAS = Decimal("0.15"), Decimal(500 << 20)
"""NDIF's defaults: a model with n bytes of weights gets n x (1 + factor) + bias, divided over its cards."""

_WEIGHTS = {None: "bf16", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8": "fp8", "int8": "int8"}
"""NDIF's types of weights whose number follows from their bytes; without one it loads bfloat16."""
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
    keys = [_key(model) for model in listed]
    last = {key: number for number, key in enumerate(keys)}
    for number, (model, key) in enumerate(zip(listed, keys, strict=True)):
        if key is None:
            model.lose(None, "no checkpoint: the model is unknown")
        elif last[key] != number:
            model.lose(None, f"{key} is listed again below, and NDIF takes the last")
        elif not is_duplicate(model, key, draft):
            draft.add(_model(model.goes_to(key), key), model.place)


def _key(model: Reading) -> str | None:
    """Return the model key: the checkpoint, with its revision if there is one. In NDIF both identify a model."""
    if not model.is_mapping:
        return model.value if isinstance(model.value, str) and model.value else None
    checkpoint, revision = model.peek("checkpoint"), model.written("revision")
    if not isinstance(checkpoint, str) or not checkpoint:
        return None
    return f"{checkpoint}@{revision}" if revision else checkpoint


def _model(model: Reading, key: str) -> dict[str, Any]:
    if isinstance(model.value, str):
        model.take()
    model.skip("checkpoint")
    model.note(None, "NDIF names no engine: write the command that serves the model", "todo")
    if model.written("revision"):
        model.skip("revision")
        model.note("revision", f"part of the model key {key}, as in NDIF: set it in the engine's command, too", "todo")
    else:
        model.text("revision")
    member = {"resources": _resources(model), "engine": {"command": [PLACEHOLDER]}}
    replicas = model.whole("replicas")
    if replicas is not None and replicas < 1:
        model.note("replicas", f"{replicas} replicas: NDIF starts one anyway, so 1 is written", "todo")
    for pinned in ("pinned", "dedicated"):
        if model.flag(pinned):
            model.note(pinned, "a plan never evicts anything to make room, so every model is pinned", "changed")
    if model.text("model_key") is not None:
        model.note("model_key", "NDIF's own key; here the checkpoint is the key", "lost")
    model.lose_each(_LOST)
    return {"key": key, "replicas": max(1, replicas or 1), "model": _numbers(model), "workers": one_group([member])}


def _numbers(model: Reading) -> dict[str, str]:
    """Return what the list tells of the model itself: its number of parameters, from their bytes and their type."""
    size, dtype = model.peek("size_bytes"), model.peek("dtype")
    weights = _WEIGHTS.get(dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype and "")
    if weights is None or not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 50:
        return {}
    model.note("size_bytes", "also written as the number of parameters, for plans to compare with the cards; a "
                             "description by `fleetctl model describe` makes it exact", "changed")
    parameters = f"{Decimal(size * 8 // WEIGHT_BITS[weights]) / 10 ** 9:f}"
    return {"parameters": f"{parameters.rstrip('0').rstrip('.') if '.' in parameters else parameters}B",
            "weights": weights}


def _resources(model: Reading) -> dict[str, Any]:
    """Return cards and VRAM, as far as the list has them; NDIF measures the rest itself."""
    gpus, padded = model.natural("gpus"), _padded_bytes(model)
    if padded is None:
        model.note("gpus" if gpus else None, "NDIF measures the model itself: add the vram it needs on each card" + (
            "" if gpus else ", and check gpus, which is 1 here"), "todo")
        return {"gpus": gpus or 1}
    if gpus is not None and gpus > 1:
        model.note("gpus", f"NDIF takes a share of each of the {gpus} cards; here they are whole cards", "lost")
        return {"gpus": gpus, "vram": _mebibytes(padded, gpus)}
    if gpus is None:
        model.note("size_bytes", "written as a share of one card: set gpus if the model needs several", "todo")
    return {"vram": _mebibytes(padded, 1)}


def _padded_bytes(model: Reading) -> int | None:
    size, factor, bias = model.whole("size_bytes"), model.amount("padding_factor"), model.amount("padding_bias")
    if size is None:
        for name in ("padding_factor", "padding_bias"):
            if name in model:
                model.note(name, "pads a size that NDIF measures itself", "lost")
        return None
    model.note("size_bytes", f"written as vram: {size} bytes with NDIF's padding, divided over the cards", "changed")
    for name, written in (("padding_factor", factor), ("padding_bias", bias)):
        if isinstance(written, str):
            model.lose(name, "not read: expected a number")
    padded = size * (1 + _decimal(factor, PADDING_FACTOR)) + _decimal(bias, PADDING_BIAS)
    return int(padded.to_integral_value(rounding=ROUND_CEILING))


def _decimal(written: str | float | None, default: Decimal) -> Decimal:
    return Decimal(str(written)) if isinstance(written, (int, float)) else default


def _mebibytes(count: int, cards: int) -> str:
    return f"{-(-count // (cards * _MIB))}Mi"
