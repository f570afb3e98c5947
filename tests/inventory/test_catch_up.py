"""When a reading waits for newer sums: only if Ray's sums exceed the lists and are written periodically."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, serve

from fleetctl.documents.inventory import Amounts, Inventory, Node, NodeResources
from fleetctl.inventory.autoscaler import LONGEST_S, sums_caught_up
from fleetctl.inventory.client import DashboardClient


class Status:
    """The times in `/api/cluster_status`, one per request; the last one repeats."""

    def __init__(self, *times: Any) -> None:
        self.times = list(times)
        self.now = 0.0
        self.reports = 0

    def caught_up(self, *, unexplained: bool = True) -> bool:
        resources = NodeResources(used=Amounts(gpu=2), listed=Amounts(gpu=1) if unexplained else None)
        inventory = Inventory(observed_at="2026-03-04T12:00:00Z", source="x", nodes=[
            Node(id="a", name="a", resources=resources)])
        with serve(ClusterStandIn()) as cluster:
            cluster.answer = self.answer  # type: ignore[method-assign]
            with DashboardClient(cluster.url) as client:
                return sums_caught_up(client, inventory, self.report, sleep=self.sleep, clock=lambda: self.now)

    def answer(self, *_: object) -> tuple[int, str]:
        read_at = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        status = read_at if isinstance(read_at, dict) or read_at is None else {"time": read_at}
        return 200, json.dumps({"result": True, "data": {"clusterStatus": status}})

    def report(self) -> None:
        self.reports += 1

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_newer_sums_are_awaited_and_the_wait_is_reported_once() -> None:
    now = time.time()
    status = Status(now - 3, now - 3, now - 3, now + 10)
    assert status.caught_up()
    assert (status.reports, status.now) == (1, 0.75)


def test_sums_read_before_the_request_and_written_after_it_are_too_old() -> None:
    now = time.time()
    status = Status(now - 6, now - 1, now - 1, now + 10)
    assert status.caught_up()
    assert len(status.times) == 1


def test_newer_sums_are_accepted_when_the_clocks_of_proxy_and_head_node_differ() -> None:
    status = Status(100.5, 105.5)
    assert status.caught_up()
    assert LONGEST_S <= status.now <= LONGEST_S + 1


def test_nothing_is_requested_when_the_lists_explain_everything_in_use() -> None:
    status = Status(100.5, 105.5)
    assert not status.caught_up(unexplained=False)
    assert len(status.times) == 2


@pytest.mark.parametrize("status", [None, {}, {"time": "soon"}])
def test_sums_read_on_request_are_not_awaited_again(status: Any) -> None:
    fixed = Status(status)
    assert not fixed.caught_up()
    assert fixed.reports == 0


def test_waiting_for_sums_that_are_never_written_ends() -> None:
    status = Status(100.5)
    assert not status.caught_up()
    assert LONGEST_S <= status.now <= LONGEST_S + 1
