"""What fleetctl promises of an engine's environment, stop, reasons, reload and gang, with real vLLM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import eventually, parent_of
from vllm_world import ENV, VllmWorld, environment_of, shared_memory

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(1800)]
RELOAD = [{"http": {"path": "/pause?mode=wait"}},
          {"http": {"path": "/collective_rpc",
                    "body": {"method": "reload_weights", "kwargs": {"weights_path": "$(FLEETCTL_NEW_MODEL_DIR)"}}}},
          {"http": {"path": "/reset_prefix_cache"}},
          {"http": {"path": "/resume"}}]


PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


def test_vllm_has_the_flags_that_the_page_has(environment: Path) -> None:
    recipes = [recipe for recipe in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
               if "vllm, serve" in recipe]
    told = subprocess.run([environment / "venv" / "bin" / "vllm", "serve", "--help=all"], capture_output=True,
                          text=True, check=True, env={**os.environ, **ENV}).stdout
    wanted = {flag for recipe in recipes for flag in re.findall(r"[\[ ](--[a-z-]+)\b", recipe)}
    assert {"--headless", "--nnodes", "--shutdown-timeout"} < wanted
    assert wanted <= set(re.findall(r"--[a-z0-9-]+", told))


def in_place(world: VllmWorld, name: str, reload: Any = RELOAD) -> dict[str, Any]:
    """A model that loads the weights of a tiny model, and reloads them."""
    served = world.member(model="$(FLEETCTL_MODEL_DIR)")
    served["weights"] = {"from": [{"path": str(world.folder / name)}], "index": world.index(name)}
    return world.model("tiny/line", served, update={"mode": "inPlace", "reload": reload})


def test_engines_that_cannot_start_fail_with_their_cause(world: VllmWorld) -> None:
    failures = {
        "tiny/cache": (world.member(VLLM_CPU_KVCACHE_SPACE="4000"), "less than requested memory for kv"),
        "tiny/flag": (world.member("--max-model-length", "512"), "unrecognized arguments: --max-model-length 512"),
        "tiny/model": (world.member(model="/nowhere/model"), "'/nowhere/model'")}
    with world.timed("three engines that cannot start"):
        outcomes = world.apply(*(world.model(key, member) for key, (member, _) in failures.items()))
    for key, (_, cause) in failures.items():
        outcome = outcomes[f"{key}/0"]
        reason, _, output = outcome["message"].partition("; last output: ")
        assert outcome["code"] == "ENGINE_EXITED"
        assert cause in reason.partition("; cause: ")[2], reason
        assert output
    shown = world.world.run("status", "-f", world.world.file).stdout
    assert "less than requested memory for kv" in shown
    assert "resource_tracker" not in shown


def test_an_engine_has_the_environment_and_the_niceness_of_its_node(world: VllmWorld) -> None:
    with world.timed("apply until ready"):
        assert world.apply(in_place(world, "one"))["tiny/line/0"]["outcome"] == "ready"
    processes = world.engines()
    assert len(processes) >= 2, "the API server and its EngineCore"
    raylet = next(pid for pid in ancestors(processes[0]) if b"raylet" in command(pid))
    for pid in processes:
        env, maps = environment_of(pid), Path(f"/proc/{pid}/maps").read_text(errors="replace")
        assert "jemalloc" not in env.get("LD_PRELOAD", "")
        assert "jemalloc" not in maps
        assert "SPT_NOENV" not in env
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, raylet)


def test_after_a_reload_no_answer_is_of_the_former_weights(world: VllmWorld) -> None:
    former = world.ask("tiny/line")
    assert world.ask("tiny/line") == former
    assert world.apply(in_place(world, "other"))["tiny/line/0"]["code"] == "RELOADED"
    answer = world.ask("tiny/line")
    assert answer != former
    httpx.post(f"{world.address('tiny/line')}/reset_prefix_cache", trust_env=False, timeout=60).raise_for_status()
    assert world.ask("tiny/line") == answer, "it was not computed from a prefix of the former weights"
    assert world.apply(in_place(world, "one"))["tiny/line/0"]["code"] == "RELOADED"
    assert world.ask("tiny/line") == former


def test_an_engine_does_not_stay_paused_if_its_way_back_fails_too(world: VllmWorld) -> None:
    former = world.ask("tiny/line")
    broken = [*RELOAD[:2], {"http": {"path": "/no_such_path"}}, RELOAD[3]]
    outcome = world.apply(in_place(world, "other", broken))["tiny/line/0"]
    assert (outcome["outcome"], outcome["code"]) == ("failed", "RELOAD_FAILED")
    assert "HTTP 404" in outcome["message"]
    assert world.ask("tiny/line", max_tokens=1) is not None
    assert world.status()["tiny/line"]["specHash"] == "unknown"
    assert world.apply(in_place(world, "one"))["tiny/line/0"]["code"] == "RELOADED"
    assert world.ask("tiny/line") == former


def test_an_engine_that_new_weights_have_broken_ends_and_starts_again_with_its_former_ones(world: VllmWorld) -> None:
    """The tensors of the new model have another size: vLLM can then load neither, and ends at its next request."""
    former = world.ask("tiny/line")
    outcome = world.apply(in_place(world, "wide"))["tiny/line/0"]
    assert (outcome["outcome"], outcome["code"]) == ("failed", "RELOAD_FAILED")
    assert "it did not load its former weights again" in outcome["message"]
    restarts = world.status()["tiny/line"]["restarts"]
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        world.ask("tiny/line")
    eventually(lambda: world.status()["tiny/line"]["restarts"] == restarts + 1, "Ray restarts it", 120)
    eventually(lambda: world.status()["tiny/line"]["state"] == "ALIVE", "it is ready again", 600)
    assert world.ask("tiny/line") == former


def test_an_engine_whose_core_dies_is_restarted_and_the_reason_names_it(world: VllmWorld) -> None:
    before, restarts = set(world.engines()), world.status()["tiny/line"]["restarts"]
    with world.timed("from a killed EngineCore until it is ready again"):
        os.kill(world.named("EngineCore")[0], signal.SIGKILL)
        eventually(lambda: not before & set(world.engines()), "the whole engine has ended", 120)
        eventually(lambda: world.status()["tiny/line"]["restarts"] == restarts + 1, "Ray restarts it", 120)
        eventually(lambda: world.status()["tiny/line"]["state"] == "ALIVE", "it is ready again", 600)
    assert "unexpectedly" in world.status()["tiny/line"]["error"]


def test_an_engine_that_hangs_is_not_ready_until_it_answers_again(world: VllmWorld) -> None:
    def ready() -> bool:
        listed = json.loads(world.world.run("endpoints", "-f", world.world.file, "--format", "json").stdout)
        served = [each for one in listed["models"] for each in one["endpoints"]]
        assert bool(served) is ("notReadySince" not in world.status()["tiny/line"])
        return bool(served)

    assert world.apply(in_place(world, "one"))["tiny/line/0"]["outcome"] == "ready"
    restarts = world.status()["tiny/line"]["restarts"]
    server = next(pid for pid in world.world.engines() if b"serve" in command(pid))
    os.kill(server, signal.SIGSTOP)
    try:
        with world.timed("from a stopped API server until the replica is not ready"):
            eventually(lambda: not ready(), "its probe fails", 180)
    finally:
        os.kill(server, signal.SIGCONT)
    with world.timed("from its going on until it is ready again"):
        eventually(ready, "its probe passes", 120)
    assert world.status()["tiny/line"]["restarts"] == restarts


def test_an_engine_that_drains_by_itself_ends_its_requests_within_its_grace_period(world: VllmWorld) -> None:
    member = world.member("--shutdown-timeout", "60")
    member["engine"]["stop"] = {"signal": "SIGTERM", "grace": "90s"}
    assert world.apply(world.model("tiny/drains", member))["tiny/drains/0"]["outcome"] == "ready"
    with ThreadPoolExecutor() as pool, world.timed("evict, without --drain, of an engine that drains"):
        lines = world.stream("tiny/drains", tokens=500, n=256)
        first = next(lines)
        answer = pool.submit(list, lines)
        evicted = world.world.start("evict", "tiny/drains", "--yes")
        eventually(lambda: world.status()["tiny/drains"].get("notReadyReason") == "it is being ended", "it is told", 60)
        assert not answer.done()
        assert "data: [DONE]" in [first, *answer.result()]
        evicted.communicate(timeout=300)
    assert evicted.returncode == 0


def test_an_evicted_engine_ends_its_requests_and_leaves_no_shared_memory(world: VllmWorld) -> None:
    left = shared_memory()
    lines = world.stream("tiny/line", tokens=200)
    first = next(lines)
    with world.timed("evict while a request is running"):
        evicted = world.world.start("evict", "tiny/line", "--yes", "--drain", "60s")
        answer = [first, *lines]
        evicted.communicate(timeout=300)
    assert evicted.returncode == 0
    assert "data: [DONE]" in answer
    assert not world.engines()
    assert shared_memory() <= left


def test_a_gang_over_two_nodes_answers_and_ends_with_the_rank_that_died(world: VllmWorld) -> None:
    flags = ["--tensor-parallel-size", "2", "--nnodes", "$(FLEETCTL_GROUP_SIZE)", "--node-rank", "$(FLEETCTL_RANK)",
             "--master-addr", "$(FLEETCTL_LEADER_ADDRESS)", "--master-port", "$(FLEETCTL_LEADER_PORT)"]
    gang = world.model("tiny/gang", world.member(*flags, role="Leader"), world.member(*flags, role="Worker"))
    with world.timed("apply of a gang until ready"):
        assert world.apply(gang)["tiny/gang/0"]["outcome"] == "ready"
    assert world.ask("tiny/gang")
    nodes = {member["nodeId"] for member in world.status()["tiny/gang"]["members"]}
    assert len(nodes) == 2
    before = set(world.engines())
    rank = next(pid for pid in world.named("Worker") if environment_of(pid)["FLEETCTL_RANK"] == "1")
    os.kill(rank, signal.SIGKILL)
    eventually(lambda: not before & set(world.engines()), "no process of the old gang is left", 120)
    eventually(lambda: world.status()["tiny/gang"]["restarts"] == 1, "Ray restarts it", 120)
    eventually(lambda: world.status()["tiny/gang"]["state"] == "ALIVE", "the gang is back", 600)
    assert world.ask("tiny/gang")


def ancestors(pid: int) -> list[int]:
    """The parents of a process up to the first one."""
    found = []
    while pid > 1:
        pid = parent_of(pid)
        found.append(pid)
    return found


def command(pid: int) -> bytes:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()
