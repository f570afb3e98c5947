"""Which kinds of cards a growing fleet gets: `python -m tests.benchmarks.growing --fleets 10 --json`.

Invented fleets of H100, A100, L4 and T4 grow by one model a merge, planned by the packer that `plan` calls, until a
part of what is wanted finds no room. A new replica is on too valuable a card if a less valuable kind had room for it
after the same plan. `--rule-off` plans without the value of cards, `--margin` with another margin of the rule. With
--json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from contextlib import ExitStack
from random import Random
from unittest import mock

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ANY_NODE, Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand, Expected
from fleetctl.planner.placement.ledger import candidates
from fleetctl.planner.placement.ledger.card_value import MICRO, CardValues
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from tests.benchmarks.machine import machine_text
from tests.benchmarks.placement.ours import GIB, POLICY

NODES = {"H100": (4, 8, 80, 192), "A100": (3, 8, 40, 96), "L4": (6, 4, 23, 48), "T4": (4, 4, 15, 48)}
"""By kind: the nodes, and for each its cards, the Gi of a card and its CPUs."""
MERGES = 60
SHAPES = {"one": 8, "share": 5, "memory": 5, "large": 7, "middle": 3, "several": 3, "pinned": 2}
"""How often a model has which shape."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=10)
    parser.add_argument("--rule-off", action="store_true", help="all cards are worth the same")
    parser.add_argument("--margin", type=float, help="what a less valuable kind may cost, in parts of the cards taken")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    total = Counter[str]()
    with ExitStack() as patches:
        if flags.rule_off:
            patches.enter_context(mock.patch.object(CardValues, "ranking", return_value=None))
        if flags.margin is not None:
            patches.enter_context(mock.patch.object(candidates, "LESS_VALUABLE", round(flags.margin * MICRO)))
        for seed in range(flags.fleets):
            total += grow(Random(seed))
    found = {"benchmark": "growing", "fleets": flags.fleets, "rule": not flags.rule_off, "margin": flags.margin,
             **dict(sorted(total.items())), "machine": machine_text()}
    print(json.dumps(found) if flags.json else "\n".join(f"{name:24} {value}" for name, value in found.items()))


def grow(random: Random) -> Counter[str]:
    """Let one fleet grow; return what was placed, and how much of it on too valuable cards."""
    ledger, found = opened(), Counter[str]()
    wanted: list[tuple[str, ReplicaShape, int]] = []
    live = Counter[int]()
    for place in range(MERGES):
        name = random.choices(list(SHAPES), list(SHAPES.values()))[0]
        wanted.append((name, shape(f"m{place}", name, random), random.randint(1, 3)))
        demands = [Demand(one, count - live[at], live[at], 0, at) for at, (_, one, count) in enumerate(wanted)
                   if count > live[at]]
        expected = [Expected(one, count - live[at], count) for at, (_, one, count) in enumerate(wanted)]
        placed = pack(demands, Placer(ledger), expected=expected).placed
        live.update(replica.demand.place for replica in placed)
        for replica in placed:
            name, assigned = wanted[replica.demand.place][0], replica.assignments[0]
            dear = memory_of(ledger, assigned.node)
            too_valuable = any(memory_of(ledger, node) < dear and ledger.fit(ledger.numbers[node], assigned.seat.claim)
                               for node in ledger.selected(assigned.seat.selector))
            found.update({"placed": 1, f"placed {name}": 1, "too valuable": too_valuable,
                          f"too valuable {name}": too_valuable,
                          "gpus of large": assigned.gpus // SHARE if name == "large" else 0})
    found["missing"] = sum(count for _, _, count in wanted) - live.total()
    return found


def memory_of(ledger: Ledger, node: int) -> int:
    """Return the memory of a card of a node."""
    return ledger.offer(node).cards[0].memory or 0


def opened() -> Ledger:
    """Return the ledger of an empty cluster."""
    hosts = [(kind, number) for kind, (nodes, *_) in NODES.items() for number in range(nodes)]
    rows = [LedgerNode(f"{kind}-{number}", f"{kind}-{number}", "ALIVE", {"kind": kind}, POLICY)
            for kind, number in hosts]
    offers = [Offer(tuple(OfferedCard(index, SHARE, gib * GIB, gib * GIB) for index in range(cards)), cards * SHARE,
                    cpus * SHARE, 1000 * GIB) for _, cards, gib, cpus in (NODES[kind] for kind, _ in hosts)]
    return Ledger.opened(rows, offers)


def shape(key: str, name: str, random: Random) -> ReplicaShape:
    """Return the shape of a replica of one member."""
    gpus, gib = {
        "one": lambda: (1.0, random.choice([0, 0, 14, 20])),
        "share": lambda: (random.choice([0.25, 0.5]), random.choice([0, 3, 6, 9])),
        "memory": lambda: (0.0, random.choice([4, 6, 10, 16, 20])),
        "large": lambda: (random.choice([2.0, 2.0, 4.0, 8.0]), 70),
        "middle": lambda: (random.choice([1.0, 2.0]), 38),
        "several": lambda: (random.choice([2.0, 2.0, 4.0]), random.choice([0, 20])),
        "pinned": lambda: (1.0, 20),
    }[name]()
    claim = Claim(round(gpus * SHARE), gib * GIB, random.choice([1, 2, 4, 8]) * SHARE, 8 * GIB)
    selector = Selector((("kind", random.choice(["L4", "H100"])),)) if name == "pinned" else ANY_NODE
    return ReplicaShape(key, (GroupShape("main", 1, (MemberShape("Standalone", 1, claim, selector),)),))


if __name__ == "__main__":
    main()
