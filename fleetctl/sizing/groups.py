"""What a worker group's cards hold of a model: the command line of its first member, and how many cards it claims."""

from __future__ import annotations

from fleetctl.documents.fleet import WEIGHT_BITS, Member, Numbers, WorkerGroup
from fleetctl.documents.model import Description
from fleetctl.documents.quantity import SHARE
from fleetctl.sizing.engine_line import EngineLine, read_engine_line
from fleetctl.sizing.fit import least_card


def first_member(group: WorkerGroup) -> Member:
    """Return the member whose command line is that of the engine: the Leader, or the Standalone."""
    return next((member for member in group.members if member.role != "Worker"), group.members[0])


def line_of(group: WorkerGroup, key: str) -> EngineLine:
    """Return what the memory of a group's engine depends on; `key` = the key of its model."""
    engine = first_member(group).engine
    size = sum(member.count or 1 for member in group.members)
    variables = {name: value if isinstance(value, str) else None for name, value in engine.env.items()}
    return read_engine_line([*engine.command, *engine.args],
                            {**variables, "FLEETCTL_MODEL": key, "FLEETCTL_GROUP_SIZE": str(size)})


def least_card_of(group: WorkerGroup, key: str, model: Description) -> int:
    """Return the memory that each card of a group must have so that it may hold `model`; 0 if that is not certain."""
    cards = cards_of(group)
    return least_card(model, line_of(group, key), cards=cards) if cards else 0


def cards_of(group: WorkerGroup) -> int:
    """Return the number of cards of which one copy of a group claims at least a share."""
    return sum((member.count or 1) * cards_of_member(member) for member in group.members)


def cards_of_member(member: Member) -> int:
    """Return the number of cards of which a member claims at least a share."""
    return -(-member.resources.gpus // SHARE) or (1 if member.resources.vram else 0)


_LAYERS = 1_680
"""As many as the stages of every usual pipeline divide, so that the largest stage has no more than its part."""


def in_short(numbers: Numbers) -> Description:
    """Return the description of a model of which only the number of parameters is told: nothing of its context.

    They count as those of experts, which engines divide the most.
    """
    kind = numbers.weights or "bf16"
    size = (numbers.parameters or 0) * WEIGHT_BITS[kind] // 8
    of_layer = size // _LAYERS
    stored_as = "F32" if kind == "fp32" else kind.upper()
    return Description.model_validate({
        "apiVersion": "fleetctl/v1", "kind": "Model", "source": "fleet file", "architecture": "unknown",
        "parameters": numbers.parameters, "bytes": size, "types": {stored_as: size}, "positions": 0, "hidden": 0,
        "vocabulary": 0, "outside": size - _LAYERS * of_layer, "attentionKnown": False, "elementBytes": 2,
        **({"quantization": kind} if WEIGHT_BITS[kind] < 16 else {}),
        "layers": [{"count": _LAYERS, "bytes": {"experts": of_layer}}]})
