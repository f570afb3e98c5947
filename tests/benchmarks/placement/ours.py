"""The product on a trace: tasks one by one by its online score, or all of them at once by its packer.

Cards are those Ray would hand out (the protocol leaves that choice free; the product does not have it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.greedy.fragmentation import Fragmentation
from fleetctl.planner.placement.ledger.cards import Card, Offer
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy, SlotCap
from tests.benchmarks.placement.check import Stay
from tests.benchmarks.placement.trace import Host, Task, Trace

MODEL = "gpu-model"
MIB = 1 << 20
POLICY = EffectivePolicy(SlotCap(NO_CAP, "benchmark"))


def ledger_of(hosts: Sequence[Host]) -> Ledger:
    """Return a ledger of empty hosts, in their order."""
    nodes = [LedgerNode(host.name, host.name, "ALIVE", {MODEL: host.model}, POLICY) for host in hosts]
    return Ledger.opened(nodes, [
        Offer(tuple(Card(index) for index in range(host.cards)), host.cards * SHARE, host.cpu_milli * SHARE // 1000,
              host.mib * MIB)
        for host in hosts
    ], {})


def kind_of(task: Task) -> tuple[Claim, Selector]:
    """Return what a task claims, and where it may stand."""
    claim = Claim(task.gpu_milli * SHARE // 1000, 0, task.cpu_milli * SHARE // 1000, task.mib * MIB)
    return claim, (((MODEL, f"in({', '.join(task.models)})"),) if task.models else ())


def online(trace: Trace, arrivals: Sequence[Task]) -> list[Stay | None]:
    """Place tasks as they come, each on the node that the product's score names, if any holds it."""
    ledger = ledger_of(trace.hosts)
    score = Fragmentation(ledger, [(*kind_of(task), count) for task, count in trace.target().items()])
    kinds = {task: kind_of(task) for task in set(arrivals)}
    answers: list[Stay | None] = []
    for task in arrivals:
        kind = kinds[task]
        node = score.best(kind, lambda _: True, lambda _: 0)
        taken = None if node is None else ledger.take(node, kind[0])
        answers.append(None if node is None or taken is None else Stay(task, node, taken.indices))
    return answers


def batch(trace: Trace, arrivals: Sequence[Task]) -> list[Stay]:
    """Plan all tasks as one fleet: a model per shape, those without a GPU at a higher priority."""
    ledger = ledger_of(trace.hosts)
    demands, task_of = [], {}
    for place, (task, count) in enumerate(sorted(Counter(arrivals).items())):
        claim, selector = kind_of(task)
        member = MemberShape("Standalone", 1, claim, selector)
        shape = ReplicaShape(f"shape-{place}", (GroupShape("main", 1, (member,)),))
        demands.append(Demand(shape, count, 0, 100 if task.cards else 200, place))
        task_of[shape.key] = task
    laid = ledger_of(trace.hosts)
    stays = []
    for placed in pack(demands, Placer(ledger)).placed:
        for stand in placed.stands:
            taken = laid.take(stand.node, stand.seat.claim)  # in order of creation: the cards Ray would hand out
            if taken is not None:
                stays.append(Stay(task_of[placed.demand.shape.key], stand.node, taken.indices))
    return stays
