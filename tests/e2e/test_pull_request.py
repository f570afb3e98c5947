"""A change of a fleet from its pull request to its apply, on a real Ray, run as in CI: no terminal, CI=true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from action_runner import ActionRun, ActionRunner
from checkout import Remote, git, make_remote, pull_request_event
from e2e_world import World, member, model
from github_stand_in import GitHubStandIn, github

pytestmark = pytest.mark.ray

BOT = "github-actions[bot]"


class Pipeline:
    """The repository of a fleet, its forge, and the jobs started by pushes to it."""

    def __init__(self, world: World, remote: Remote, hub: GitHubStandIn, runner: ActionRunner) -> None:
        self.world, self.remote, self.hub, self.runner = world, remote, hub, runner
        self.pushes = 0

    def fleet(self, **replicas: int) -> str:
        """The text of a fleet of models, by key, that take one GPU each."""
        return self.world.write(*(model(key, count, member("--plain")) for key, count in replicas.items())).read_text()

    def run(self, place: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `fleetctl ...` in a checkout, as a step of a job does."""
        return self.world.run(*arguments, folder=place, CI="true")

    def push(self, text: str) -> Path:
        """Push to the branch of the pull request and return the checkout of its job."""
        self.pushes += 1
        self.head = self.remote.commit("change", text)
        return self.remote.check_out(self.world.tmp_path / f"work-{self.pushes}", "change")

    def merge(self) -> Path:
        """Merge the pull request and return the checkout of main."""
        self.remote.merge("change")
        return self.remote.fetch(self.world.tmp_path / "merged", "main")

    def act(self, place: Path, *, of_pull_request: bool = True, **inputs: str) -> ActionRun:
        """Run the action in a checkout, for the pull request or for the push to main that followed."""
        event = self.world.tmp_path / "event.json"
        if of_pull_request:
            pull_request_event(event, git(self.remote.desk, "rev-parse", "main"), self.head)
        else:
            event.write_text("{}")
        environ = {**self.world.env, **self.hub.environment(), "GITHUB_EVENT_PATH": str(event),
                   "GITHUB_WORKSPACE": str(place), "GITHUB_STEP_SUMMARY": str(self.world.tmp_path / "summary.md"),
                   "GITHUB_RUN_ID": "99", "GITHUB_ACTOR": "ann", "GITHUB_SERVER_URL": "https://github.example.com"}
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        token = environ.pop("GITHUB_TOKEN")
        return self.runner.run({"files": "fleet.yaml", "github-token": token, **given}, environ, place)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ActionRunner:
    """A runner with the environment of these tests; tests/ci covers how the action creates its own environment."""
    made = ActionRunner(tmp_path_factory.mktemp("runner"))
    made.use(Path(sys.prefix))
    return made


@pytest.fixture
def pipeline(world: World, runner: ActionRunner) -> Iterator[Pipeline]:
    """A repository whose main branch has one replica of model `one`, which runs."""
    with github() as hub:
        made = Pipeline(world, make_remote(world.tmp_path), hub, runner)
        made.remote.commit("main", made.fleet(one=1))
        assert world.apply_result()["exitCode"] == 0
        yield made


def test_a_change_from_its_pull_request_to_its_apply(pipeline: Pipeline) -> None:
    world, hub = pipeline.world, pipeline.hub
    place = pipeline.push(pipeline.fleet(one=2, two=1))

    diff = pipeline.run(place, "diff", "HEAD^1", "-f", "fleet.yaml", "--format", "json")
    assert diff.returncode == 0, diff.stderr
    assert json.loads(diff.stdout)["summary"]["additive"] == 2
    plan = pipeline.run(place, "plan", "--base", "HEAD^1", "-f", "fleet.yaml", "--format", "json")
    change = json.loads(plan.stdout)["change"]
    assert (change["create"], change["blocked"], change["alsoWithout"]) == (2, 0, 0)

    first = pipeline.act(place)
    assert (first.code, first.outputs["exit_code"]) == (0, "2"), first.log
    assert "2 to create, 0 blocked" in hub.of(BOT)[0]
    second = pipeline.act(pipeline.push(pipeline.fleet(one=3, two=9)))
    assert (second.code, second.outputs["exit_code"]) == (0, "3"), second.log
    assert [method for method, _ in hub.writes()] == ["POST", "PATCH"]
    [comment] = hub.of(BOT)
    assert "5 to create, 6 blocked" in comment
    assert set(world.actors()) == {"ModelActor:one:0"}, "a review changes nothing"

    pipeline.push(pipeline.fleet(one=2, two=1))
    merged = pipeline.merge()
    planned = pipeline.act(merged, of_pull_request=False, plan_file="lab.fleetplan")
    assert (planned.code, planned.outputs["plan_file"]) == (0, "lab.fleetplan"), planned.log
    applied = pipeline.act(merged, of_pull_request=False, mode="apply", plan_file="lab.fleetplan")
    assert (applied.code, applied.outputs["plan_id"]) == (0, planned.outputs["plan_id"]), applied.log
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1", "ModelActor:two:0"}
    [job] = [job for job in world.jobs() if job["metadata"]["planId"] == planned.outputs["plan_id"]]
    assert job["metadata"]["commit"] == git(merged, "rev-parse", "HEAD")

    again = pipeline.act(merged, of_pull_request=False, mode="apply", plan_file="lab.fleetplan")
    assert (again.code, again.outputs["exit_code"]) == (6, "6")
    assert "already applied by job" in again.log
    assert len(hub.writes()) == 2, "only pull requests get comments"
    assert len(world.actors()) == 3


def test_a_saved_plan_is_refused_only_if_its_basis_has_changed(pipeline: Pipeline) -> None:
    world, desk = pipeline.world, pipeline.remote.desk
    names = {world.cluster.node_id(name=name): name for name in "abc"}
    node = names[world.actors()["ModelActor:one:0"]["node"]]
    other = min(set(names.values()) - {node})
    file = world.write(model("one", 2, member("--plain", node=node)), model("two", 1, member("--plain", node=other)))
    for name, only in (("filled", "two"), ("joined", "one"), ("appeared", "one")):
        # other bytes, because two plans of the same second would be identical
        (desk / "fleet.yaml").write_text(f"{file.read_text()}# {name}\n")
        saved = pipeline.run(desk, "plan", "-f", "fleet.yaml", "--target", only, "--out", f"{name}.fleetplan")
        assert saved.returncode == 0, saved.stderr

    world.cluster.hold(namespace=world.fleet, name="somebody", node=other, gpus=2)
    filled = pipeline.run(desk, "apply", "filled.fleetplan", "--yes")
    assert filled.returncode == 6
    assert f"moved: node {other}: less is free than two/0 claims" in filled.stderr

    world.cluster.add(names=["g"])
    try:
        joined = pipeline.run(desk, "apply", "joined.fleetplan", "--yes")
    finally:
        world.cluster.remove(name="g")
    assert joined.returncode == 0, joined.stderr
    appeared = pipeline.run(desk, "apply", "appeared.fleetplan", "--yes")
    assert appeared.returncode == 6
    assert "moved: one: 1 live when planned, 2 now" in appeared.stderr
    assert {name for name in world.actors() if name != "somebody"} == {"ModelActor:one:0", "ModelActor:one:1"}
