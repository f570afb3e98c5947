"""action.yml: its steps, run as a runner does against a stand-in GitHub, and the rules for its text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from action_runner import EXPRESSION, ActionRunner, load_action
from cluster_stand_in import ClusterStandIn, all_ready, serve
from github_stand_in import JOB_TOKEN, GitHubStandIn
from pull_request import FLEET, PullRequest

pytestmark = pytest.mark.slow

BOT = "github-actions[bot]"
MORE = FLEET.replace("replicas: 1", "replicas: 3")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ActionRunner:
    """A runner on which the action has created its environment."""
    made = ActionRunner(tmp_path_factory.mktemp("runner"))
    done = made.install()
    assert done.code == 0, done.log
    assert [name.split("@")[0] for name in done.used] == ["actions/setup-python"]
    return made


@pytest.fixture
def act(runner: ActionRunner, pull: PullRequest, snapshot_file: Path):
    """Run the action for the last push, on a snapshot of the cluster."""
    def run_action(checkout: Path, **inputs: str):
        all_inputs = {"files": "fleet.yaml", "inventory": str(snapshot_file), "github-token": JOB_TOKEN,
                 **{name.replace("_", "-"): value for name, value in inputs.items()}}
        return runner.run(all_inputs, {**pull.environ, "GITHUB_TOKEN": ""}, checkout)

    return run_action


def test_two_pushes_leave_one_comment_that_is_up_to_date(act, pull: PullRequest, hub: GitHubStandIn) -> None:
    first = act(pull.push(MORE))
    assert first.code == 0, first.log
    assert first.outputs["has_changes"] == "true"
    assert first.outputs["exit_code"] == "3"
    assert re.fullmatch("[0-9a-f]{64}", first.outputs["plan_id"])
    assert "2 to create, 1 blocked" in first.outputs["summary"]
    created = hub.of(BOT)
    assert "2 to create, 1 blocked" in created[0]

    second = act(pull.push(FLEET.replace("replicas: 1", "replicas: 2")))
    assert second.code == 0, second.log
    assert len(hub.of(BOT)) == 1
    assert "2 to create, 0 blocked" in hub.of(BOT)[0]
    assert [method for method, _ in hub.writes()] == ["POST", "PATCH"]
    assert JOB_TOKEN not in first.log + second.log
    assert "2 to create" in Path(pull.environ["GITHUB_STEP_SUMMARY"]).read_text()


def test_a_broken_file_fails_the_step_and_its_outputs_say_so(act, pull: PullRequest, hub: GitHubStandIn) -> None:
    done = act(pull.push("a: ["))
    assert done.code == 1
    assert done.outputs["exit_code"] == "1"
    assert "No plan for fleet lab" in hub.of(BOT)[0]


def test_modules_in_the_checkout_are_never_imported(act, pull: PullRequest) -> None:
    checkout = pull.push(MORE)
    for name in ("fleetctl", "typer", "json", "sitecustomize", "venv"):
        (checkout / f"{name}.py").write_text("raise SystemExit('the checkout was imported')\n")
    assert act(checkout).code == 0


def test_inputs_are_values_and_never_become_script(act, pull: PullRequest) -> None:
    checkout = pull.push(MORE)
    hostile = "$(touch owned)`touch owned`; touch owned"
    done = act(checkout, files=hostile, base="--output=owned")
    assert done.code == 1
    assert "Traceback" not in done.log
    assert not (checkout / "owned").exists()
    assert act(checkout, mode=hostile).code == 64
    assert not (checkout / "owned").exists()


def test_a_plan_is_saved_on_request_and_fail_on_is_respected(act, pull: PullRequest) -> None:
    checkout = pull.push(MORE)
    done = act(checkout, plan_file="lab.fleetplan", reports="html=plan.html\nsarif=plan.sarif", fail_on="blocked",
               comment="false")
    assert done.code == 3
    assert done.outputs["plan_file"] == "lab.fleetplan"
    assert [Path(checkout / name).exists() for name in done.outputs["reports"].splitlines()] == [True, True]
    assert pull.hub.requests == []


def test_after_the_merge_a_step_applies_the_plan_that_another_has_saved_and_comments_on_nothing(
    act, pull: PullRequest
) -> None:
    cluster = ClusterStandIn(on_submit=lambda request: all_ready(request)[-1:])
    cluster.add_node("node-a")
    pull.merge(FLEET + "# merged\n")
    checkout = Path(pull.environ["GITHUB_WORKSPACE"])
    with serve(cluster):
        where = {"address": cluster.url, "inventory": "", "plan_file": "lab.fleetplan"}
        planned = act(checkout, **where)
        assert (planned.code, planned.outputs["plan_file"]) == (0, "lab.fleetplan"), planned.log
        applied = act(checkout, mode="apply", **where)
    assert (applied.code, applied.outputs["plan_id"]) == (0, planned.outputs["plan_id"]), applied.log
    assert [job.body["metadata"]["planId"] for job in cluster.jobs.values()] == [planned.outputs["plan_id"]]
    assert pull.hub.writes() == []


def test_validate_needs_no_cluster(act, pull: PullRequest) -> None:
    done = act(pull.push(MORE), mode="validate", inventory="")
    assert done.code == 0, done.log
    assert done.outputs["plan_id"] == ""


def test_no_script_has_an_expression_and_actions_are_pinned_to_a_commit() -> None:
    for step in load_action()["runs"]["steps"]:
        assert not EXPRESSION.search(step.get("run", ""))
        assert "uses" not in step or re.fullmatch(r"actions/setup-python@[0-9a-f]{40}", step["uses"])


def test_every_input_reaches_a_step_and_every_output_comes_from_one() -> None:
    action = load_action()
    used = set(re.findall(r"inputs\.([a-z-]+)", str(action["runs"])))
    assert used == set(action["inputs"])
    for name, output in action["outputs"].items():
        assert output["value"] == f"${{{{ steps.fleetctl.outputs.{name} }}}}"


def test_every_variable_of_the_action_is_read_by_the_program(runner: ActionRunner) -> None:
    names = {name for step in load_action()["runs"]["steps"] for name in step.get("env", {})
             if name.startswith("FLEETCTL_")}
    source = "".join(path.read_text() for path in (runner.action_path / "fleetctl").rglob("*.py"))
    assert [name for name in sorted(names) if f'"{name}"' not in source] == []


def test_git_ignores_no_file_that_the_action_needs() -> None:
    ignored = subprocess.run(["git", "check-ignore", "action.yml", "requirements/runtime.txt", "fleetctl"],
                             cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert ignored.stdout == b""


