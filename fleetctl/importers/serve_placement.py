"""The claims of one replica of a Serve deployment, from its actor options or the bundles of its placement group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.draft import bytes_text, filled, one_group
from fleetctl.importers.reading import Reading

_TYPE_RESOURCE = "accelerator_type:"
_CUSTOM = "a custom resource: select nodes by label instead"
_ONE_NODE = ("PACK", "STRICT_PACK")

Bundle = dict[str, Decimal]
"""Ray's resources of one bundle: GPU, CPU, memory in bytes, and types of accelerators."""


def replica_groups(source: Reading, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `workers` of a deployment, and `placement` if it may take more than one node."""
    options = source.child("ray_actor_options")
    base, selector = _actor(options), options.child("label_selector").pairs()
    bundles = [read_bundle(one) for one in source.items("placement_group_bundles")]
    selectors = [one.pairs() for one in source.items("placement_group_bundle_label_selector")]
    strategy = source.text("placement_group_strategy") or "PACK"
    if not bundles:
        if "CPU" not in base:
            source.note(None, "no num_cpus: 1 CPU is used, as in Serve", "changed")
        return {"workers": one_group([member_of({**base, "CPU": base.get("CPU", Decimal(1))}, selector, engine)])}
    if strategy in _ONE_NODE or len(bundles) == 1:
        return _one_node(source, bundles, _merged(source, [selector, *selectors]), engine, strategy)
    return _gang(source, bundles, [{**selector, **one} for one in selectors], engine, strategy)


def _one_node(source: Reading, bundles: list[Bundle], selector: dict[str, str], engine: Mapping[str, Any],
              strategy: str) -> dict[str, Any]:
    if len(bundles) > 1:
        nodes = "on one node; Ray may spread them if no node has room for all" if strategy == "PACK" else "on one node"
        source.note("placement_group_bundles", f"{len(bundles)} bundles become one member with their sum, {nodes}",
                    "lost" if strategy == "PACK" else "changed")
    return {"workers": one_group([member_of(whole_cards(source, "placement_group_bundles", sum_of(bundles)), selector,
                                            engine)])}


def _gang(source: Reading, bundles: list[Bundle], selectors: list[dict[str, str]], engine: Mapping[str, Any],
          strategy: str) -> dict[str, Any]:
    padded = [selectors[number] if number < len(selectors) else {} for number in range(len(bundles))]
    members = [member_of(whole_cards(source, "placement_group_bundles", bundle), chosen, engine)
               for bundle, chosen in zip(bundles, padded, strict=True)]
    source.note("placement_group_strategy", f"{strategy}: the first bundle is the Leader, the others are Workers; each "
                                            "starts an engine of its own", "todo")
    spread: dict[str, Any] = {} if strategy == "STRICT_SPREAD" else {"placement": {"ranksPerNode": len(bundles)}}
    return {**spread, "workers": one_group(gang_members(members))}


def gang_members(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the members of a gang: the first rank is the Leader, and equal consecutive Workers are one entry."""
    workers = [{"role": "Worker", "count": len(list(alike)), **one} for one, alike in groupby(ranks[1:])]
    return [{"role": "Leader", **ranks[0]}, *workers]


def member_of(bundle: Bundle, selector: dict[str, str], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a member that claims a bundle; a type of accelerator in it selects nodes."""
    types = [name.removeprefix(_TYPE_RESOURCE) for name in bundle if name.startswith(_TYPE_RESOURCE)]
    typed = {ACCELERATOR_LABEL: types[0]} if types else {}
    return filled({"resources": _resources(bundle), "nodeSelector": {**typed, **selector}, "engine": dict(engine)})


def sum_of(bundles: Sequence[Bundle], *, times: int = 1) -> Bundle:
    """Return the sum of several bundles, each counted `times` times."""
    total: Bundle = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = amount if name.startswith(_TYPE_RESOURCE) else total.get(name, Decimal(0)) + amount * times
    return total


def _resources(bundle: Bundle) -> dict[str, Any]:
    names = {"GPU": "gpus", "CPU": "cpus"}
    resources: dict[str, Any] = {ours: int(amount) if amount == amount.to_integral_value() else float(amount)
                                 for theirs, ours in names.items() if (amount := bundle.get(theirs))}
    if bundle.get("memory"):
        resources["memory"] = bytes_text(int(bundle["memory"].to_integral_value(rounding="ROUND_CEILING")))
    return resources


def _actor(options: Reading) -> Bundle:
    """Return the resources of the replica's actor, with an accelerator type as Ray's own resource for it."""
    found = {name: amount for theirs, name in (("num_gpus", "GPU"), ("num_cpus", "CPU"), ("memory", "memory"))
             if (amount := _amount(options, theirs)) is not None}
    accelerator = options.text("accelerator_type")
    if accelerator is not None:
        found[_TYPE_RESOURCE + accelerator] = Decimal(1)
    options.child("resources").lose_rest(_CUSTOM)
    options.lose("object_store_memory", "fleetctl does not manage Ray's object store")
    options.lose("fallback_strategy", "a selector has no fallback")
    return found


def read_bundle(source: Reading) -> Bundle:
    """Return the resources of one bundle; custom ones are reported."""
    known = [name for name in source.names if name in ("GPU", "CPU", "memory") or name.startswith(_TYPE_RESOURCE)]
    found = {name: amount for name in known if (amount := _amount(source, name)) is not None}
    source.lose_rest(_CUSTOM)
    return found


def _amount(source: Reading, key: str) -> Decimal | None:
    """Return an amount of a resource; None if it is missing or, reported, not a number."""
    amount = source.amount(key)
    if isinstance(amount, (int, float)):
        return Decimal(str(amount))
    if key in source:
        source.note(key, "not read: expected a number", "todo")
    return None


def whole_cards(source: Reading, key: str, bundle: Bundle) -> Bundle:
    """Return the bundle with more than one card rounded up to whole cards; a change is reported at the key."""
    gpus = bundle.get("GPU", Decimal(0))
    if gpus <= 1 or gpus == gpus.to_integral_value():
        return bundle
    whole = gpus.to_integral_value(rounding="ROUND_CEILING")
    source.note(key, f"{gpus} GPUs in one member: more than one must be whole cards, so {whole} is used", "todo")
    return {**bundle, "GPU": whole}


def _merged(source: Reading, selectors: list[dict[str, str]]) -> dict[str, str]:
    """Merge the selectors of bundles that become one member; if two conflict, the last wins."""
    found: dict[str, str] = {}
    for name, text in ((name, text) for one in selectors for name, text in one.items()):
        if found.get(name, text) != text:
            source.note("placement_group_bundle_label_selector", f"bundles of one member have different {name}", "todo")
        found[name] = text
    return found
