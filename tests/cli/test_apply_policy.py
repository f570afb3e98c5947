"""`fleetctl apply` and the policy of the fleet: a refused plan is not started, and --force lifts only thresholds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

THRESHOLDS = "{maxNewReplicas: 1, maxNewGpus: 8}"
FORBIDDEN = "{maxNewReplicas: 1, protectedModels: [org/two]}"


def with_policy(fleet_file: Path, policy: str) -> Path:
    fleet_file.write_text(fleet_file.read_text().replace("spec:\n", f"spec:\n  policy: {policy}\n"))
    return fleet_file


def save(cli, fleet: Path, *flags: str) -> Path:
    path = fleet.with_name("lab.fleetplan")
    assert cli("plan", "-f", fleet, "--out", path, *flags).code == 0
    return path


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("flags", [["--yes"], ["--yes", "--format", "json"]], ids=str)
def test_a_refused_plan_exits_with_4_before_any_action_and_names_every_policy(
    cli, cluster: ClusterStandIn, fits: Path, flags: list[str], saved: bool
) -> None:
    fleet = with_policy(fits, THRESHOLDS)
    result = cli("apply", *([save(cli, fleet)] if saved else ["-f", fleet]), *flags)
    assert result.code == 4
    assert "error: refused by the policy of the fleet, for 2 reasons; nothing was started" in result.err
    assert f"policy: the plan creates 3 replicas, against spec.policy.maxNewReplicas: 1 at {fleet}:5:" in result.err
    assert "policy: the plan takes 16 GPUs, against spec.policy.maxNewGpus: 8 at " in result.err
    assert "--force lifts it for this run" in result.err
    assert cluster.writes() == []


def test_json_names_every_refusing_policy_too(cli, fits: Path) -> None:
    summary = cli("apply", "-f", with_policy(fits, THRESHOLDS), "--yes", "--format", "json").summary
    assert summary["exitCode"] == 4
    assert "maxNewReplicas: 1" in summary["message"]
    assert "maxNewGpus: 8" in summary["message"]


def test_only_the_first_findings_are_shown_and_the_rest_are_counted(cli, fits: Path) -> None:
    model = fits.read_text().partition("  models:\n")[2].partition("  - key: org/two")[2]
    many = "".join(f"  - key: org/m{number}{model}" for number in range(25))
    with_policy(fits, "{protectedModels: ['org/m*']}").write_text(fits.read_text() + many)
    result = cli("apply", "-f", fits, "--yes", "--format", "json")
    assert result.err.count("policy: ") == 21
    assert "error: refused by the policy of the fleet, for 25 reasons" in result.err
    assert "policy: and 5 more; `fleetctl plan --format json` lists them" in result.err
    assert "and 5 more" in result.summary["message"]


def test_the_whole_plan_is_shown_beside_the_refusal(cli, fits: Path) -> None:
    out = cli("apply", "-f", with_policy(fits, THRESHOLDS), "--yes").out
    assert "Refused by policy" in out
    assert out.rstrip().endswith("Plan: 3 to create, 0 blocked, 0 held, 0 to remove (fleetctl never removes); "
                                 "refused by policy")


def test_there_is_no_question_about_a_refused_plan(cli, cluster: ClusterStandIn, fits: Path) -> None:
    result = cli("apply", "-f", with_policy(fits, THRESHOLDS), typed="y\n")
    assert result.code == 4
    assert "[y/N]" not in result.err
    assert cluster.writes() == []


@pytest.mark.parametrize("saved", [False, True])
def test_force_lifts_thresholds_and_says_so(cli, cluster: ClusterStandIn, fits: Path, saved: bool) -> None:
    fleet = with_policy(fits, THRESHOLDS)
    result = cli("apply", *([save(cli, fleet)] if saved else ["-f", fleet]), "--yes", "--force")
    assert result.code == 0
    assert "warning: lifted by --force: spec.policy.maxNewReplicas: 1; the plan creates 3 replicas" in result.err
    assert ("Policy: lifted by --force" in result.out) is not saved
    assert len(cluster.jobs) == 1


def test_a_plan_made_with_force_is_applied_without_it(cli, cluster: ClusterStandIn, fits: Path) -> None:
    plan = save(cli, with_policy(fits, THRESHOLDS), "--force")
    written = json.loads(plan.read_text())
    assert written["options"]["force"] is True
    assert {finding["lifted"] for finding in written["policy"]} == {True}
    assert cli("apply", plan, "--yes").code == 0
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("saved", [False, True])
def test_force_does_not_lift_the_protection_of_a_model(cli, cluster: ClusterStandIn, fits: Path, saved: bool) -> None:
    fleet = with_policy(fits, FORBIDDEN)
    result = cli("apply", *([save(cli, fleet, "--force")] if saved else ["-f", fleet]), "--yes", "--force")
    assert result.code == 4
    assert "refused by the policy of the fleet; nothing was started" in result.err
    assert "protectedModels: org/two" in result.err
    assert "no flag lifts this; --exclude org/two plans the rest" in result.err
    assert cluster.writes() == []


def test_excluding_the_model_as_the_message_suggests_works(cli, cluster: ClusterStandIn, fits: Path) -> None:
    assert cli("apply", "-f", with_policy(fits, FORBIDDEN), "--yes", "--force", "--exclude", "org/two").code == 0
    assert len(cluster.jobs) == 1


def test_saving_a_refused_plan_says_that_apply_will_refuse_it(cli, fits: Path) -> None:
    with_policy(fits, THRESHOLDS)
    result = cli("plan", "-f", fits, "--out", fits.with_name("p"), "--detailed-exitcode")
    assert result.code == 4
    assert "`fleetctl apply` will refuse it: it exceeds a threshold" in result.err
    assert "apply it with --force" in result.err


def test_a_policy_that_is_satisfied_changes_nothing(cli, cluster: ClusterStandIn, fits: Path) -> None:
    result = cli("apply", "-f", with_policy(fits, "{maxNewReplicas: 3, maxNewGpus: 16, maxChangePercent: 1}"), "--yes")
    assert (result.code, "by policy" in result.out, "warning" in result.err) == (0, False, False)
