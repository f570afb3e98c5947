"""The placement benchmark: the protocol of arrivals, the checks, and the product against its peers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import openb
from tests.benchmarks.peers.arena import opened
from tests.benchmarks.peers.fgd import Fgd
from tests.benchmarks.peers.scores import MostAllocated, VolcanoBinpack
from tests.benchmarks.placement.check import TaskPlacement, needlessly_refused, violations
from tests.benchmarks.placement.measure import Run, measure, published_fgd
from tests.benchmarks.placement.trace import Host, Task, Trace, read_trace, synthetic_trace

pytestmark = pytest.mark.slow

HOSTS = (Host("a", 8_000, 1_000, 2, "x"), Host("b", 4_000, 1_000, 1, "y"))


def small_trace() -> Trace:
    """An eighth of the synthetic cluster."""
    whole = synthetic_trace()
    return Trace("small", whole.hosts[::8], whole.tasks)


def test_arrivals_follow_the_seed_and_stop_at_the_load() -> None:
    trace = small_trace()
    half, full = trace.arrivals(1, 0.5), trace.arrivals(1, 1.0)
    assert full[: len(half)] == half
    assert full != trace.arrivals(2, 1.0)
    largest = max(task.gpu_milli for task in trace.tasks)
    demand = sum(task.gpu_milli for task in full)
    assert trace.capacity - largest < demand <= trace.capacity


def test_a_trace_too_short_for_the_load_is_drawn_from_again() -> None:
    few = Trace("few", HOSTS, (Task(1, 500, 100, 1), Task(1, 250, 100, 1)))
    arrived = few.arrivals(3, 1.0)
    assert sum(task.gpu_milli for task in arrived) > 2_000
    assert set(arrived) == set(few.tasks)


def test_the_target_is_the_popular_part_scaled_to_the_cluster() -> None:
    trace = Trace("t", HOSTS, (Task(1, 500, 1, 1),) * 96 + (Task(1, 1000, 1, 1),) * 4)
    assert trace.target() == {Task(1, 500, 1, 1): 6.0}


def test_lists_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "openb_pod_list_x.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,2000,10,1,300,V|P\np0,1000,20,0,0,\n")
    (tmp_path / "published_allocation.csv").write_text(
        "workload,policy,arrived_pct,gpu_alloc_pct_mean,sd,n_seeds\nopenb_pod_list_x,06-FGD,100,95.5,0.1,10\n")
    trace = read_trace(nodes, pods)
    assert trace.hosts == (Host("n0", 64_000, 262_144, 2, "P100"),)
    assert trace.tasks == (Task(0, 0, 1_000, 20), Task(1, 300, 2_000, 10, ("P", "V")))
    assert published_fgd(pods, 1.0) == 95.5
    assert published_fgd(pods, 0.9) is None


@pytest.mark.parametrize(("placements", "message"), [
    ([TaskPlacement(Task(1, 600, 1, 1), 0, (0,)), TaskPlacement(Task(1, 600, 1, 1), 0, (0,))], "overcommitted"),
    ([TaskPlacement(Task(1, 100, 9_000, 1), 0, (0,))], "overcommitted"),
    ([TaskPlacement(Task(0, 0, 1, 1_001), 1, ())], "overcommitted"),
    ([TaskPlacement(Task(2, 1000, 1, 1), 0, (1, 1))], "asks for 2 cards"),
    ([TaskPlacement(Task(1, 1000, 1, 1, ("y",)), 0, (0,))], "may not run on x"),
])
def test_the_check_finds_what_is_wrong(placements: list[TaskPlacement], message: str) -> None:
    assert message in violations(HOSTS, placements)[0]


def test_the_check_passes_what_fits_and_sees_a_refusal() -> None:
    task = Task(1, 500, 1, 1)
    assert violations(HOSTS, [TaskPlacement(task, host, (0,)) for host in (0, 0, 1)]) == []
    assert needlessly_refused(HOSTS, [task], [None]) == 1
    assert needlessly_refused(HOSTS, [Task(3, 1000, 1, 1)], [None]) == 0


def test_fgd_leaves_the_card_alone_that_the_typical_task_could_use() -> None:
    fgd = Fgd.of([Task(1, 600, 1, 1)])
    hosts = opened((HOSTS[0],))
    hosts.cards[0] = [600, 500]
    choice = fgd.choose(hosts, Task(1, 400, 1, 1))
    assert (choice.card[0], choice.scores[0]) == (1, -400.0)


def test_packing_scores_prefer_the_fuller_host() -> None:
    hosts = opened((HOSTS[0], HOSTS[0]))
    hosts.cards[1, 0] = 0
    hosts.cpu[1] -= 1_000
    for policy in (MostAllocated(), VolcanoBinpack()):
        scores = policy.choose(hosts, Task(1, 1000, 1_000, 10)).scores
        assert scores[1] < scores[0]


@pytest.mark.parametrize(("policy", "mode"), [("fleetctl", "batch"), ("fleetctl, 10 a plan", "online")])
def test_ours_breaks_no_rule_and_starves_nobody_without_a_gpu(policy: str, mode: str) -> None:
    ours = measure(policy, Run(small_trace(), 42, mode, 1.0))
    assert ours["violations"] == 0
    assert ours.get("needlesslyRefused", 0) == 0
    assert ours["cpuOnlyPlaced"] == ours["cpuOnlyArrived"] > 0


def test_merge_by_merge_it_places_more_than_the_peers_do() -> None:
    def mean(policy: str) -> float:
        lines = [measure(policy, Run(small_trace(), seed, "online", 1.0)) for seed in range(42, 46)]
        return sum(line["gpuAllocPct"] for line in lines) / len(lines)

    peers = max(map(mean, ("random", "first-fit", "fgd")))
    assert mean("fleetctl, 10 a plan") > peers
    assert mean("fleetctl, 10 a plan, demand known") > peers


def test_the_last_line_is_one_object_and_peers_come_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(openb.DATA, raising=False)
    monkeypatch.setattr("tests.benchmarks.openb.synthetic_trace", small_trace)
    monkeypatch.setattr("sys.argv", ["openb", "--seed", "1", "--json", "--policy", "fleetctl, 100 a plan"])
    with pytest.raises(SystemExit) as ended:
        openb.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ended.value.code == 0
    assert [line["policy"] for line in lines][-2:] == ["fgd", "fleetctl, 100 a plan"]
    assert {"gpuAllocPct", "cpuOnlyPlaced", "cpuOnlyArrived", "seconds", "machine", "versions"} <= lines[-1].keys()
