"""An engine's environment, and its arguments with our references expanded."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from engine_run import DUMP_ENV, ENDS, ActorStandIn, Run
from marked_processes import eventually

from fleetctl.agent import node as node_module
from fleetctl.agent.messages import Engine, FromNode
from fleetctl.agent.node import engine_environment
from fleetctl.agent.report import StartFailed


def env_seen(actor: ActorStandIn) -> dict[str, str]:
    actor.read_report("failed", "down")
    seen: dict[str, str] = json.loads(actor.written())
    return seen


def test_an_engine_sees_the_nodes_environment_its_own_and_what_is_injected(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "node", "RAY_TMPDIR": "/x"},
                env={"MODE": "fast", "TOKEN": {"fromNode": "HF_TOKEN"}, "EMPTY": "", "DOLLAR": "$5 $MODE"})
    port, seen = actor.read_report("created"), env_seen(actor)
    assert {name: seen.get(name) for name in ("HF_TOKEN", "LANG", "MODE", "TOKEN", "EMPTY", "DOLLAR")} == {
        "HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "fast", "TOKEN": "secret", "EMPTY": "",
        "DOLLAR": "$5 $MODE",
    }
    injected = {name: value for name, value in seen.items() if name.startswith("FLEETCTL_")}
    assert injected == {"FLEETCTL_PORT": str(port), "FLEETCTL_RANK": "0",
                        "FLEETCTL_LEADER_PORT": seen["FLEETCTL_LEADER_PORT"]}
    assert not [name for name in seen if name == "PYTHONPATH" or name.startswith("RAY_")]
    assert "SET_BY_RAY" not in seen


def test_an_engine_has_nothing_that_ray_put_into_its_own_processes(run: Run) -> None:
    """Its allocator and the switch of its process titles, also through `fromNode`; the rest of LD_PRELOAD stays."""
    theirs = "/lib/x86_64-linux-gnu/libm.so.6"
    allocator = str(Path(ray.__file__).parent / "core" / "libjemalloc.so")
    node = {"LD_PRELOAD": f"{allocator}:{theirs}" if Path(theirs).exists() else allocator, "SPT_NOENV": "1",
            "RAY_LD_PRELOAD_ON_WORKERS": "0"}
    seen = env_seen(run(*DUMP_ENV, node=node))
    assert "SPT_NOENV" not in seen
    assert seen.get("LD_PRELOAD", theirs) == theirs
    actor = run("true", node={**node, "LD_PRELOAD": allocator}, env={"X": {"fromNode": "LD_PRELOAD"}})
    assert actor.read_report("failed")["failed"] == "ENV_MISSING"


def test_a_probe_has_the_environment_of_its_engine(run: Run, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    actor = run("sleep", "1000", node={"LD_PRELOAD": str(Path(ray.__file__).parent / "core" / "libjemalloc.so")},
                readiness={"exec": {"command": ["sh", "-c", f"env > {seen}"]}})
    actor.read_report("ready")
    assert "LD_PRELOAD" not in seen.read_text()


NICE = (sys.executable, "-I", "-S", "-c",
        "import os; print(os.nice(0), open('/proc/self/oom_score_adj').read().strip())")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may take a niceness back")
def test_an_engine_and_its_probes_run_as_the_raylet_does_and_not_as_rays_workers(run: Run, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    actor = run("sh", "-c", '"$@"; exec sleep 1000', "sh", *NICE, order={"asWorker": True},
                readiness={"exec": {"command": ["sh", "-c", f'"$@" > {seen}', "sh", *NICE]}})
    actor.read_report("ready")
    as_here = f"{os.nice(0)} {Path('/proc/self/oom_score_adj').read_text()}"
    eventually(lambda: actor.written() != "", "the engine's line is in its log")
    assert (actor.written(), seen.read_text()) == (as_here, as_here)


def test_where_it_may_not_be_changed_an_engine_has_the_niceness_of_rays_workers(run: Run) -> None:
    actor = run(*NICE, order={"asWorker": True, "unprivileged": True})
    actor.read_report("failed", "down")
    assert actor.written() == f"{min(19, os.nice(0) + 5)} 1000\n"


@pytest.mark.parametrize(("cpus", "node", "own", "seen"), [
    (40_000, {}, {}, "4"), (15_000, {}, {}, "1"), (9_999, {}, {}, None), (0, {}, {}, None),
    (40_000, {"OMP_NUM_THREADS": "7"}, {}, "7"), (40_000, {}, {"OMP_NUM_THREADS": "2"}, "2"),
    (40_000, {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}, {}, "4")])
def test_an_engine_has_as_many_threads_as_it_claims_cpus_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, cpus: int, node: dict[str, str], own: dict[str, str], seen: str | None
) -> None:
    """The last node was started by `ray up`, which sets this for all of its commands."""
    monkeypatch.setattr(node_module, "environment_of", lambda _: {b"PATH": b"/bin", **{
        name.encode(): value.encode() for name, value in node.items()}})
    assert engine_environment(Engine(env=own), {}, cpus).get("OMP_NUM_THREADS") == seen


@pytest.mark.parametrize(("before", "after"), [
    ({"LD_PRELOAD": "/opt/x/ray/core/libjemalloc.so"}, {}),
    ({"LD_PRELOAD": "/opt/x/ray/core/libjemalloc.so /usr/lib/libtcmalloc.so.4"},
     {"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"}),
    ({"LD_PRELOAD": "/usr/lib/a.so:/usr/lib/b.so"}, {"LD_PRELOAD": "/usr/lib/a.so:/usr/lib/b.so"}),
    ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}),
    ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2", "RAY_JEMALLOC_LIB_PATH": "/usr/lib/libjemalloc.so.2",
      "MALLOC_CONF": "prof:true", "RAY_JEMALLOC_CONF": "prof:true"}, {}),
    ({"MALLOC_CONF": "narenas:2", "RAY_JEMALLOC_CONF": "prof:true"}, {"MALLOC_CONF": "narenas:2"}),
    ({"LD_PRELOAD": "/p.so", "PERFTOOLS_PATH": "/p.so", "CPUPROFILE": "/l", "PERFTOOLS_LOGFILE": "/l"},
     {"PERFTOOLS_PATH": "/p.so", "PERFTOOLS_LOGFILE": "/l"}),
    ({"LD_PRELOAD": ""}, {}), ({"SPT_NOENV": "1", "SPT_DEBUG": "1"}, {"SPT_DEBUG": "1"}),
    ({"PYTHONWARNINGS": "ignore"}, {"PYTHONWARNINGS": "ignore"})])
def test_only_what_ray_made_is_left_out_of_the_nodes_environment(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: dict[str, str]
) -> None:
    monkeypatch.setattr(node_module, "environment_of", lambda _: {
        name.encode(): value.encode() for name, value in {"PATH": "/bin", **before}.items()})
    assert node_module.node_environment() == {"PATH": "/bin", **after}


def test_an_engine_runs_as_the_user_of_its_actor(run: Run) -> None:
    actor = run("id", "-u")
    actor.read_report("failed", "down")
    assert actor.written() == f"{os.getuid()}\n"


def test_injected_variables_override_the_engines_and_those_override_the_nodes(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"CUDA_VISIBLE_DEVICES": "5"}, env={"CUDA_VISIBLE_DEVICES": "6"})
    assert env_seen(actor)["CUDA_VISIBLE_DEVICES"] == "0,3"


@pytest.mark.parametrize(("own", "seen"), [
    ({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST"),
])
def test_cards_have_the_drivers_numbers_unless_the_engine_sets_the_order(
    run: Run, own: dict[str, str], seen: str
) -> None:
    assert env_seen(run(*DUMP_ENV, node={"CUDA_DEVICE_ORDER": "x"}, env=own))["CUDA_DEVICE_ORDER"] == seen


def test_a_variable_the_node_does_not_have_stops_the_start(run: Run) -> None:
    actor = run("sleep", "1000", env={"HF_TOKEN": {"fromNode": "HF_TOKEN_FILE"}})
    assert actor.read_report("failed") == {
        "failed": "ENV_MISSING", "message": "HF_TOKEN: the node has no variable HF_TOKEN_FILE"}
    assert actor.fresh_folders() == []


def test_variables_that_ray_sets_for_its_workers_are_not_the_nodes(run: Run) -> None:
    actor = run("true", env={"X": {"fromNode": "SET_BY_RAY"}})
    assert actor.read_report("failed")["failed"] == "ENV_MISSING"


def test_a_secret_of_the_node_reaches_an_argument_through_the_engines_environment(run: Run) -> None:
    actor = run("printf", "%s", "--api-key=$(API_KEY)", node={"PROD_KEY": "secret"},
                env={"API_KEY": {"fromNode": "PROD_KEY"}})
    actor.read_report("failed", "down")
    assert actor.written().endswith("--api-key=secret")


def test_references_in_command_and_args_are_expanded_and_all_else_is_verbatim(run: Run) -> None:
    actor = run("printf", "%s\n", "--port=$(FLEETCTL_PORT)", env={"MODE": "fast"},
                args=["$(MODE)", "$$(MODE)", "$(NOBODY)", "$MODE", "a  b", "*"], order=ENDS)
    port = actor.read_report("created")
    actor.read_report("failed")
    assert actor.written().splitlines() == [f"--port={port}", "fast", "$(MODE)", "$(NOBODY)", "$MODE", "a  b", "*"]


def test_references_in_values_of_the_environment_are_expanded_in_whatever_order_they_are(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"HOME": "/home/ray", "SECRET": "s$(A)", "A": "the node's"}, env={
        "URL": "http://$(HOST):$(FLEETCTL_PORT)/$(PATHS)", "HOST": "h", "PATHS": "$(HOST)/x", "ESCAPED": "$$(HOST) $$",
        "PATH": "/opt/bin:$(PATH)", "HOME": "$(HOME)/engine", "TOKEN": {"fromNode": "SECRET"}, "COPY": "$(TOKEN)",
        "A": "own", "NOBODY": "$(NO_SUCH_NAME)", "CARDS": "$(CUDA_VISIBLE_DEVICES)", "CUDA_VISIBLE_DEVICES": "$(A)"})
    port, seen = actor.read_report("created"), env_seen(actor)
    assert {name: seen[name] for name in ("URL", "PATHS", "ESCAPED", "HOME", "COPY", "NOBODY", "CARDS")} == {
        "URL": f"http://h:{port}/h/x", "PATHS": "h/x", "ESCAPED": "$(HOST) $", "HOME": "/home/ray/engine",
        "COPY": "s$(A)", "NOBODY": "$(NO_SUCH_NAME)", "CARDS": "0,3"}
    assert seen["PATH"] == f"/opt/bin:{os.environ['PATH']}"
    assert seen["CUDA_VISIBLE_DEVICES"] == "0,3"


@pytest.mark.parametrize("env", [{"A": "x$(FLEETCTL_PROT)"}, {"B": "$(A)", "A": "$(FLEETCTL_PROT)"}])
def test_an_unknown_fleetctl_reference_in_the_environment_stops_the_start(run: Run, env: dict[str, str]) -> None:
    actor = run("sleep", "1000", env=env)
    assert actor.read_report("failed") == {
        "failed": "UNRESOLVED_VARIABLE", "message": "$(FLEETCTL_PROT) is not a fleetctl variable"}
    assert actor.fresh_folders() == []


def test_values_that_refer_to_each_other_in_a_circle_stop_the_start(run: Run) -> None:
    failed = run("sleep", "1000", env={"A": "$(B)", "B": "$(C)x", "C": "$(A)", "D": "$(A)"}).read_report("failed")
    assert failed == {"failed": "UNRESOLVED_VARIABLE",
                      "message": "variables of env refer to each other in a circle: A, B, C"}


@pytest.mark.parametrize(("engine", "named"), [
    ({"args": ["short", "x" * (128 << 10)]}, "argument 3 has 131072 bytes"),
    ({"env": {"HALF": "x" * (64 << 10), "BIG": "$(HALF)$(HALF)"}}, "the variable BIG has 131076 bytes"),
])
def test_a_text_that_linux_hands_to_no_process_is_named(run: Run, engine: dict[str, Any], named: str) -> None:
    failed = run("sleep", "1000", **engine).read_report("failed")
    assert (failed["failed"], failed["message"]) == (
        "TEXT_TOO_LONG", f"{named}, and Linux allows a process 131071 in each")


def test_the_longest_text_that_linux_allows_starts(run: Run) -> None:
    actor = run("printf", "%.3s", "x" * ((128 << 10) - 1))
    actor.read_report("failed", "down")
    assert actor.written().endswith("xxx")


def test_weights_take_what_is_known_of_the_environment_before_the_start() -> None:
    env = {"TOKEN": "t$(FLEETCTL_RANK)", "OWN": "$(FLEETCTL_HOST)", "BELOW": "$(OWN)/x", "HOME": "/h"}
    found = engine_environment(Engine(env=env), {"FLEETCTL_RANK": "1"}, partial=True)
    assert {name: found.get(name) for name in env} == {"TOKEN": "t1", "OWN": None, "BELOW": "$(OWN)/x", "HOME": "/h"}
    with pytest.raises(StartFailed, match="X: the node has no variable NOWHERE_SET"):
        engine_environment(Engine(env={"X": FromNode("NOWHERE_SET")}), {}, partial=True)


def test_an_unknown_fleetctl_reference_stops_the_start(run: Run) -> None:
    actor = run("sleep", "1000", args=["$(FLEETCTL_PROT)"])
    assert actor.read_report("failed") == {
        "failed": "UNRESOLVED_VARIABLE", "message": "$(FLEETCTL_PROT) is not a fleetctl variable"}
    assert actor.fresh_folders() == [], "a start that was refused leaves no folder"
