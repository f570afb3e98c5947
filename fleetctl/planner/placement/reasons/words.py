"""Amounts, nodes and claims in words, for the messages of a plan."""

from __future__ import annotations

from fleetctl.documents.inventory import Gpu
from fleetctl.documents.plan import Counted
from fleetctl.documents.quantity import SHARE, amount_of, count_of, format_bytes, format_share, plural, some
from fleetctl.documents.selector import ACCELERATOR_LABEL, parse_requirement
from fleetctl.planner.placement.claims import Claim, ReplicaShape, Selector

MAX_PROCESSES = 3


def nodes(count: int, kind: str = "") -> str:
    """Return a number of nodes in words: `1 node`, `3 H200 nodes`."""
    return count_of(count, f"{kind} node" if kind else "node")


def gpus(units: int) -> str:
    """Return an amount of 1/10000 GPU in words."""
    return f"{format_share(units)} GPU" + ("" if 0 < units <= SHARE else "s")


def parts_text(shape: ReplicaShape) -> str:
    """Return the groups of a replica in words: `prefill and 2 copies of decode`."""
    *most, last = [f"{group.copies} copies of {group.name}" if group.copies > 1 else group.name
                   for group in shape.groups]
    return f"{', '.join(most)} and {last}" if most else last


def spread_text(counted: Counted, wanted: int) -> str:
    """Say on how many nodes the free GPUs are, for a need of `wanted` 1/10000 GPU; empty if that adds nothing."""
    free, on = counted.free_gpus, counted.on_nodes
    if not wanted or on <= max(1, counted.fitting):
        return ""
    verb = "is" if free <= SHARE else "are"
    where = f"but spread over {nodes(on)}" if free >= wanted else f"in all, on {nodes(on)}"
    return f"; {gpus(free)} {verb} free {where}"


def node_kind(selector: Selector) -> str:
    """Return the card that a selector requires by Ray's label: `H200`, `L4 or A10G`; empty if it requires none."""
    wanted = dict(selector.labels).get(ACCELERATOR_LABEL)
    requirement = None if wanted is None else parse_requirement(wanted)
    return "" if requirement is None or requirement.negated else " or ".join(sorted(requirement.values))


def claims_text(shape: ReplicaShape) -> str:
    """Return the claims of one replica by group: `2 x 8 GPUs of 120Gi`."""
    groups = []
    for group in shape.groups:
        members = []
        for (claim, selector), count in group.classes().items():
            where = ", ".join(f"{key}={value}" for key, value in selector.labels)
            text = claim_text(claim) + (f" on {where}" if where else "")
            times = count * group.copies
            members.append(text if times == 1 else f"{times} x ({text})" if "," in text else f"{times} x {text}")
        groups.append(" + ".join(members))
    return ", ".join(groups)


def claim_text(claim: Claim) -> str:
    """Return all that one member claims: `8 GPUs of 120Gi, 4 CPUs, 64Gi memory`."""
    parts = []
    if claim.gpus:
        parts.append(amount_of(claim.gpus, "GPU") + (f" of {format_bytes(claim.vram)}" if claim.vram else ""))
    elif claim.vram:
        parts.append(f"{format_bytes(claim.vram)} VRAM")
    if claim.cpus:
        parts.append(amount_of(claim.cpus, "CPU"))
    if claim.memory:
        parts.append(f"{format_bytes(claim.memory)} memory")
    return ", ".join(parts) or "nothing"


def with_claim(claim: Claim) -> str:
    """Say what one member needs on its node, GPUs first; empty if it needs nothing countable."""
    each = " each" if claim.whole_cards > 1 else ""
    vram = f" of {format_bytes(claim.vram)} free VRAM{each}" if claim.vram else ""
    if claim.whole_cards:
        return f" with {count_of(claim.whole_cards, 'free GPU')}{vram}"
    if claim.wants_card:
        return (f" with {format_share(claim.gpus)} of a card free" if claim.gpus else " with a card") + vram
    return f" with {format_share(claim.cpus)} free CPUs" if claim.cpus else ""


def need_text(code: str, need: int, claim: Claim, card: int) -> str:
    """Return the need behind a code, with its unit; `card` = the card Ray would hand out, -1 = no single card."""
    picked = f" (Ray would hand out card {card})" if card >= 0 else ""
    cards = f" {plural(need, 'GPU')}" if claim.whole_cards else " card"
    about = {
        "INSUFFICIENT_CPU": " free CPUs",
        "INSUFFICIENT_MEMORY": " free memory",
        "INSUFFICIENT_VRAM": f" free VRAM on a card{picked}",
        "CARD_MEMORY_UNKNOWN": " VRAM on a card whose memory is known",
        "INSUFFICIENT_GPU": f" {plural(need, 'free GPU')}" if claim.whole_cards
                            else f" of {'one' if claim.gpus else 'a'} card",
        "CARD_IN_USE": f"{cards} that nothing else uses{picked}",
        "CARD_COOLING": f"{cards} not cooling{picked}",
    }[code]
    return f"{amount(code, need, claim)}{about}"


def amount(code: str, value: int, claim: Claim) -> str:
    """Format an amount in the unit of a code."""
    if code in {"INSUFFICIENT_VRAM", "CARD_MEMORY_UNKNOWN", "INSUFFICIENT_MEMORY"}:
        return format_bytes(value)
    shares = code == "INSUFFICIENT_CPU" or (code == "INSUFFICIENT_GPU" and not claim.whole_cards)
    return format_share(value) if shares else str(value)


def users_text(card: Gpu) -> str:
    """Return ` by process 4242 (ray::Trainer)` for the processes of a card, the largest first; empty if unknown."""
    largest = sorted(card.processes, key=lambda one: (-(one.memory or 0), one.pid))
    named = [f"process {one.pid}{f' ({one.command})' if one.command else ''}" for one in largest]
    return f" by {some(named, MAX_PROCESSES)}" if named else ""
