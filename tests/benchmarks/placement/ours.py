"""The product on a trace: a sequence of small plans, or one plan for all tasks.

Cards are those Ray would hand out: the protocol allows any choice, the product has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ANY_NODE, Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand, Expected
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy, SlotCap
from tests.benchmarks.placement.check import TaskPlacement
from tests.benchmarks.placement.trace import Host, Task, Trace

MODEL = "gpu-model"
MIB, GIB = 1 << 20, 1 << 30
POLICY = EffectivePolicy(SlotCap(NO_CAP, "benchmark"))


def ledger_of(hosts: Sequence[Host]) -> Ledger:
    """Return a ledger of empty hosts, in their order."""
    nodes = [LedgerNode(host.name, host.name, "ALIVE", {MODEL: host.model}, POLICY) for host in hosts]
    return Ledger.opened(nodes, [
        Offer(tuple(OfferedCard(index, SHARE, memory, memory) for index in range(host.cards)), host.cards * SHARE,
              host.cpu_milli * SHARE // 1000, host.mib * MIB)
        for host, memory in ((host, host.card_gib * GIB or None) for host in hosts)
    ])


def kind_of(task: Task) -> tuple[Claim, Selector]:
    """Return the claim and the selector of a task."""
    claim = Claim(task.gpu_milli * SHARE // 1000, 0, task.cpu_milli * SHARE // 1000, task.mib * MIB)
    return claim, Selector(((MODEL, f"in({', '.join(task.models)})"),)) if task.models else ANY_NODE


def merge_by_merge(
    trace: Trace, arrivals: Sequence[Task], size: int, *, known: bool
) -> list[tuple[Task, TaskPlacement | None]]:
    """Plan a growing fleet to which each merge adds `size` tasks; return the placement of each task.

    `known` = the file has the total demand from the start, as with `--target`; otherwise only the tasks so far.
    """
    ledger, granted = ledger_of(trace.hosts), ledger_of(trace.hosts)
    shapes = {task: shape_of(task, place) for place, task in enumerate(sorted(set(arrivals)))}
    rest, total, live = Counter(arrivals), Counter(arrivals) if known else Counter[Task](), Counter[Task]()
    answers: list[tuple[Task, TaskPlacement | None]] = []
    for start in range(0, len(arrivals), size):
        merged = Counter(arrivals[start:start + size])
        if not known:
            total += merged
        demands = [Demand(shapes[task], count, live[task], priority_of(task), place)
                   for place, (task, count) in enumerate(merged.items())]
        expected = [Expected(shapes[task], rest[task] if known else merged[task], count)
                    for task, count in total.items()]
        placements = Counter[Task]()
        task_of = {shapes[task].key: task for task in merged}
        for placed in pack(demands, Placer(ledger), expected=expected).placed:
            task, assigned = task_of[placed.demand.shape.key], placed.assignments[0]
            taken = granted.take(assigned.node, assigned.seat.claim)  # in order of creation, so with Ray's cards
            if taken is not None:
                answers.append((task, TaskPlacement(task, assigned.node, taken.indices)))
                placements[task] += 1
        answers += [(task, None) for task in (merged - placements).elements()]
        live += placements
        rest -= merged
    return answers


def shape_of(task: Task, place: int) -> ReplicaShape:
    """Return the shape of a replica that consists of one such task."""
    claim, selector = kind_of(task)
    return ReplicaShape(f"shape-{place}", (GroupShape("main", 1, (MemberShape("Standalone", 1, claim, selector),)),))


def priority_of(task: Task) -> int:
    """Tasks without a GPU have a higher priority: the benchmark measures only GPUs."""
    return 100 if task.cards else 200


def batch(trace: Trace, arrivals: Sequence[Task]) -> list[TaskPlacement]:
    """Plan all tasks as one fleet: a model per shape, those without a GPU at a higher priority."""
    ledger = ledger_of(trace.hosts)
    demands, task_of = [], {}
    for place, (task, count) in enumerate(sorted(Counter(arrivals).items())):
        shape = shape_of(task, place)
        demands.append(Demand(shape, count, 0, priority_of(task), place))
        task_of[shape.key] = task
    granted = ledger_of(trace.hosts)
    placements = []
    expected = [Expected(demand.shape, demand.missing, demand.missing) for demand in demands]
    for placed in pack(demands, Placer(ledger), expected=expected).placed:
        for assigned in placed.assignments:
            taken = granted.take(assigned.node, assigned.seat.claim)  # in order of creation, so with Ray's cards
            if taken is not None:
                placements.append(TaskPlacement(task_of[placed.demand.shape.key], assigned.node, taken.indices))
    return placements
