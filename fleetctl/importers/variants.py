"""Says what in the files of other systems would be variants of a model. Imports nothing.

SkyPilot's tasks, kthena's ModelBoosters and bindings of heterogeneous targets, llm-d's VariantAutoscalings: each has a
form for one model on several kinds of cards, and none has a shape that could be copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.documents.quantity import some
from fleetctl.importers.reading import Reading

_KTHENA, _LLM_D = (".volcano.sh",), ("llmd.ai", "llm-d.ai")
_LIMITS = "its minReplicas and maxReplicas as min and max"
_SHOWN = 40
_NAMED = 4


def would_be_variants(reading: Reading) -> str:
    """Return the words for it, which follow a message; "" for a document of no such form."""
    version, kind = (str(reading.peek(key) or "") for key in ("apiVersion", "kind"))
    group = version.partition("/")[0]
    form: Callable[[Reading, str], str] | None = None
    if not version:
        form = _sky_pilot
    elif group.endswith(_KTHENA):
        form = _kthena
    elif group.endswith(_LLM_D):
        form = _llm_d
    return form(reading, kind) if form else ""


def _sky_pilot(reading: Reading, _: str) -> str:
    for key in ("ordered", "any_of"):
        found = _listed(reading.peek("resources", key))
        if found:
            cards = [_accelerator(entry) for entry in found]
            order = "in this order" if key == "ordered" else "with the preferred one first"
            return _words("a SkyPilot task", f"each entry of resources.{key}", cards, order)
    several = reading.peek("resources", "accelerators")
    cards = [_short(card) for card in several] if isinstance(several, (dict, list)) else []
    return _words("a SkyPilot task", "each of resources.accelerators", cards, "with the preferred one first") if len(
        cards) > 1 else ""


def _kthena(reading: Reading, kind: str) -> str:
    if kind == "ModelBooster":
        backends = _listed(reading.peek("spec", "backends"))
        return _words("a ModelBooster of kthena", "each of spec.backends", [_named(one) for one in backends],
                      _LIMITS) if backends else ""
    if kind != "AutoscalingPolicyBinding":
        return ""
    params = _listed(reading.peek("spec", "heterogeneousTarget", "params"))
    targets = [entry.get("target") if isinstance(entry, dict) else None for entry in params]
    names = [_named(target.get("targetRef", target)) if isinstance(target, dict) else "" for target in targets]
    return _words("an AutoscalingPolicyBinding of kthena", "each target of spec.heterogeneousTarget", names,
                  f"{_LIMITS}, and its cost as the price of nodes") if params else ""


def _llm_d(reading: Reading, kind: str) -> str:
    model = _short(reading.peek("spec", "modelID"))
    if kind != "VariantAutoscaling" or not model:
        return ""
    return (f"; in a fleet file each VariantAutoscaling of {model} would be one of the variants of that model, "
            "with the pods of its target as workers: see docs/variants.md")


def _words(what: str, entries: str, names: list[str], how: str) -> str:
    shown = [name for name in names if name]
    of = f" ({some(shown, _NAMED)})" if shown else ""
    return (f"; this is {what}: in a fleet file {entries}{of} would be one of a model's variants, {how}: see "
            "docs/variants.md")


def _listed(value: Any) -> list[Any]:  # noqa: ANN401  any YAML value
    return value if isinstance(value, list) else []


def _accelerator(entry: Any) -> str:  # noqa: ANN401  any YAML value
    found = entry.get("accelerators") if isinstance(entry, dict) else None
    if isinstance(found, dict):
        return ", ".join(f"{_short(card)}:{_short(count)}" for card, count in list(found.items())[:_NAMED])
    return _short(found)


def _named(entry: Any) -> str:  # noqa: ANN401  any YAML value
    return _short(entry.get("name")) if isinstance(entry, dict) else ""


def _short(value: Any) -> str:  # noqa: ANN401  any YAML value
    """Return a value of the file as it may be shown; "" for none and for a collection."""
    text = str(value) if isinstance(value, (str, int, float)) else ""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN])
