"""What one replica of an LLMConfig is: a member with the cards of all its ranks, or a gang with a member a stage.

As vLLM and Ray have it, tensor parallel ranks are on one node, and the stages of pipeline parallel may be on several.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.draft import filled, one_group
from fleetctl.importers.reading import Reading
from fleetctl.importers.serve_placement import Bundle, gang_members, member_of, read_bundle, sum_of, whole_cards

_JOINS = ("--nnodes=$(FLEETCTL_GROUP_SIZE)", "--node-rank=$(FLEETCTL_RANK)", "--master-addr=$(FLEETCTL_LEADER_ADDRESS)",
          "--master-port=$(FLEETCTL_LEADER_PORT)")
"""How vLLM's processes of several nodes find each other; all but the first are `--headless`."""


def llm_groups(source: Reading, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return `workers`, and `placement` of a gang, of an LLMConfig."""
    tensor, stages, data = (_degree(source, f"{what}_parallel_size") for what in ("tensor", "pipeline", "data"))
    accelerator = source.text("accelerator_type")
    selector = {ACCELERATOR_LABEL: accelerator} if accelerator else {}
    group = source.child("placement_group_config")
    strategy = group.text("strategy") or "PACK"
    bundles, is_written = _bundles(group, tensor * stages)
    if strategy == "STRICT_PACK" or len(bundles) % stages:
        stages = 1
    _report_strategy(group, strategy, len(bundles) if is_written and stages == 1 else 0)
    each = len(bundles) // stages
    claims = [whole_cards(source, "placement_group_config", sum_of(bundles[first:first + each] * data))
              for first in range(0, len(bundles), each)]
    _report_cards(source, claims, data, is_written=is_written)
    if stages == 1:
        return {"workers": one_group([member_of(claims[0], selector, engine)])}
    leader = {**engine, "args": [*engine["args"], *_JOINS]}
    worker = {**leader, "args": [*leader["args"], "--headless"], "readiness": None}
    members = [member_of(claim, selector, filled(worker if rank else leader)) for rank, claim in enumerate(claims)]
    return {"placement": {"ranksPerNode": stages}, "workers": one_group(gang_members(members))}


def _degree(source: Reading, name: str) -> int:
    ranks = source.peek("engine_kwargs", name)
    return ranks if isinstance(ranks, int) and ranks > 0 else 1


def _bundles(group: Reading, ranks: int) -> tuple[list[Bundle], bool]:
    """Return a bundle for each rank, and whether they are written: Ray gives every rank a card."""
    each = group.child("bundle_per_worker")
    written = [read_bundle(each)] * ranks if each.names else [read_bundle(one) for one in group.items("bundles")]
    return written or [{"GPU": Decimal(1)}] * ranks, bool(written)


def _report_strategy(group: Reading, strategy: str, bundles: int) -> None:
    """Say that the bundles of a replica, or of a stage, become one member, which is on one node."""
    if strategy not in ("PACK", "STRICT_PACK"):
        group.note("strategy", f"{strategy}: a replica, or a stage of it, is one member, on one node", "lost")
    if bundles > 1 and "bundles" in group:
        group.note("bundles", f"{bundles} bundles are written as one member with their sum, on one node",
                   "changed" if strategy == "STRICT_PACK" else "lost")


def _report_cards(source: Reading, claims: list[Bundle], data: int, *, is_written: bool) -> None:
    gpus = claims[0].get("GPU", Decimal(0))
    key = "engine_kwargs" if "engine_kwargs" in source else None
    if len(claims) > 1:
        source.note(key, f"a gang of {len(claims)} members with {gpus} GPUs each, one for each stage of pipeline "
                         "parallel: a vLLM that does not know --nnodes needs another command", "todo")
    if data > 1:
        source.note(key, f"gpus: {gpus} on one node, {data} times those of one rank of data parallel, which Ray may "
                         "put on several nodes: there write a gang", "todo")
    elif len(claims) == 1 and not is_written:
        source.note(key, f"gpus: {gpus} for each replica, as tensor x pipeline parallel", "changed")
