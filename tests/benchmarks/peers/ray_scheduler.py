"""Ray's own autoscaler v2 scheduler (`ResourceDemandScheduler`) on fixed nodes: all demands at once, no node to launch.

It counts the GPUs of a node as one number, so it promises room that no single card has. Two results matter: the tasks
that it reports to fit, and those that get cards when Ray's node agents hand them out, largest share first.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.benchmarks.placement.check import TaskPlacement
from tests.benchmarks.placement.trace import Host, Task

MODEL = "gpu-model"
MIB = 1 << 20


class Promised(NamedTuple):
    """The tasks that Ray reports to fit, and the placements of those that get cards."""

    tasks: list[Task]
    placements: list[TaskPlacement]


def ray_scheduler(hosts: Sequence[Host], tasks: Sequence[Task]) -> Promised:
    """Run the scheduler once over all tasks."""
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, ResourceRequestSource, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    shapes = Counter(tasks)
    request = SchedulingRequest(
        disable_launch_config_check=True, node_type_configs={}, max_num_nodes=len(hosts),
        resource_requests=[_by_count(task, count) for task, count in sorted(shapes.items())],
        current_instances=[_instance(place, host) for place, host in enumerate(hosts)],
    )
    # The public schedule() returns only infeasible demands; these are its two steps for plain demands.
    context = ResourceDemandScheduler.ScheduleContext.from_schedule_request(request)
    ResourceDemandScheduler._sched_resource_requests(
        context, ResourceRequestUtil.ungroup_by_count(request.resource_requests))
    promised: list[Task] = []
    placements: list[TaskPlacement] = []
    for node in context.get_nodes():
        place = int(node.ray_node_id)
        promised_here = [_task(one) for one in node.sched_requests[ResourceRequestSource.PENDING_DEMAND]]
        promised += promised_here
        placements += _on_cards(hosts[place], place, promised_here)
    return Promised(promised, placements)


def _bundle(task: Task) -> dict[str, float]:
    bundle = {"CPU": task.cpu_milli / 1000, "memory": float(task.mib * MIB), "GPU": task.gpu_milli / 1000}
    return {name: amount for name, amount in bundle.items() if amount}


def _by_count(task: Task, count: int) -> Any:
    from ray.core.generated.autoscaler_pb2 import ResourceRequest, ResourceRequestByCount
    from ray.core.generated.common_pb2 import LabelSelectorOperator

    request = ResourceRequest(resources_bundle=_bundle(task))
    if task.models:
        constraint = request.label_selectors.add().label_constraints.add()
        constraint.label_key, constraint.operator = MODEL, LabelSelectorOperator.LABEL_OPERATOR_IN
        constraint.label_values.extend(task.models)
    return ResourceRequestByCount(request=request, count=count)


def _task(request: Any) -> Task:
    """Return the task of a request."""
    bundle = dict(request.resources_bundle)
    gpu = round(1000 * bundle.get("GPU", 0))
    models = tuple(request.label_selectors[0].label_constraints[0].label_values) if request.label_selectors else ()
    cards = max(1, gpu // 1000) if gpu else 0
    return Task(cards, gpu // cards if cards else 0, round(1000 * bundle.get("CPU", 0)),
                round(bundle.get("memory", 0) / MIB), models)


def _instance(place: int, host: Host) -> Any:
    from ray.autoscaler.v2.schema import AutoscalerInstance
    from ray.core.generated.autoscaler_pb2 import NodeState
    from ray.core.generated.instance_manager_pb2 import Instance, NodeKind

    total = {"CPU": host.cpu_milli / 1000, "memory": float(host.mib * MIB), "GPU": float(host.cards)}
    node = NodeState(ray_node_type_name=host.model, total_resources=total, available_resources=total,
                     labels={MODEL: host.model})
    return AutoscalerInstance(cloud_instance_id=str(place), ray_node=node, im_instance=Instance(
        instance_id=str(uuid.UUID(int=place)), status=Instance.RAY_RUNNING, instance_type=host.model,
        node_kind=NodeKind.WORKER, node_id=str(place)))


def _on_cards(host: Host, place: int, tasks: Sequence[Task]) -> Iterator[TaskPlacement]:
    """Hand out cards like Ray's node agent: whole free cards, and a share of the fullest card that holds it."""
    free = [1000] * host.cards
    for task in sorted(tasks, key=lambda task: -task.gpu_milli):
        holding = sorted((left, card) for card, left in enumerate(free) if left >= task.milli)
        if task.cards > len(holding):
            continue
        cards = tuple(card for _, card in holding[: task.cards])
        for card in cards:
            free[card] -= task.milli
        yield TaskPlacement(task, place, cards)
