"""The product on a trace: small plans one after another, or one plan for all of it.

Cards are those Ray would hand out (the protocol leaves that choice free; the product does not have it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.cards import Card, Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.node import LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy, SlotCap
from fleetctl.planner.placement.worth.expected import Expected
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
    ])


def kind_of(task: Task) -> tuple[Claim, Selector]:
    """Return what a task claims, and where it may stand."""
    claim = Claim(task.gpu_milli * SHARE // 1000, 0, task.cpu_milli * SHARE // 1000, task.mib * MIB)
    return claim, (((MODEL, f"in({', '.join(task.models)})"),) if task.models else ())


def merge_by_merge(trace: Trace, arrivals: Sequence[Task], size: int, *, known: bool) -> list[tuple[Task, Stay | None]]:
    """Plan as a team does that adds `size` tasks with each merge, on a fleet that fills up; what each task got.

    `known` = the file says from the start what it wants in all, as with `--target`; else only what it has so far.
    """
    ledger, laid = ledger_of(trace.hosts), ledger_of(trace.hosts)
    shapes = {task: shape_of(task, place) for place, task in enumerate(sorted(set(arrivals)))}
    rest, total, live = Counter(arrivals), Counter(arrivals) if known else Counter[Task](), Counter[Task]()
    answers: list[tuple[Task, Stay | None]] = []
    for start in range(0, len(arrivals), size):
        asked = Counter(arrivals[start:start + size])
        if not known:
            total += asked
        demands = [Demand(shapes[task], count, live[task], priority_of(task), place)
                   for place, (task, count) in enumerate(asked.items())]
        expected = [Expected(shapes[task], rest[task] if known else asked[task], count)
                    for task, count in total.items()]
        stays = Counter[Task]()
        task_of = {shapes[task].key: task for task in asked}
        for placed in pack(demands, Placer(ledger), expected=expected).placed:
            task, assigned = task_of[placed.demand.shape.key], placed.assignments[0]
            taken = laid.take(assigned.node, assigned.seat.claim)  # in order of creation: the cards Ray would hand out
            if taken is not None:
                answers.append((task, Stay(task, assigned.node, taken.indices)))
                stays[task] += 1
        answers += [(task, None) for task in (asked - stays).elements()]
        live += stays
        rest -= asked
    return answers


def shape_of(task: Task, place: int) -> ReplicaShape:
    """Return a replica that is one such task."""
    claim, selector = kind_of(task)
    return ReplicaShape(f"shape-{place}", (GroupShape("main", 1, (MemberShape("Standalone", 1, claim, selector),)),))


def priority_of(task: Task) -> int:
    """Tasks without a GPU come first, as they do not count in what is measured."""
    return 100 if task.cards else 200


def batch(trace: Trace, arrivals: Sequence[Task]) -> list[Stay]:
    """Plan all tasks as one fleet: a model per shape, those without a GPU at a higher priority."""
    ledger = ledger_of(trace.hosts)
    demands, task_of = [], {}
    for place, (task, count) in enumerate(sorted(Counter(arrivals).items())):
        shape = shape_of(task, place)
        demands.append(Demand(shape, count, 0, priority_of(task), place))
        task_of[shape.key] = task
    laid = ledger_of(trace.hosts)
    stays = []
    expected = [Expected(demand.shape, demand.missing, demand.missing) for demand in demands]
    for placed in pack(demands, Placer(ledger), expected=expected).placed:
        for assigned in placed.assignments:
            taken = laid.take(assigned.node, assigned.seat.claim)  # in order of creation: the cards Ray would hand out
            if taken is not None:
                stays.append(Stay(task_of[placed.demand.shape.key], assigned.node, taken.indices))
    return stays
