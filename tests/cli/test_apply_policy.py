"""`fleetctl apply` and the policy of the fleet: what it refuses is not begun, and --force lifts thresholds alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

THRESHOLDS = "{maxNewReplicas: 1, maxNewGpus: 8}"
FORBIDDEN = "{maxNewReplicas: 1, protectedModels: [org/two]}"


def under(fleet_file: Path, policy: str) -> Path:
    fleet_file.write_text(fleet_file.read_text().replace("spec:\n", f"spec:\n  policy: {policy}\n"))
    return fleet_file


def save(cli, fleet: Path, *flags: str) -> Path:
    path = fleet.with_name("lab.fleetplan")
    assert cli("plan", "-f", fleet, "--out", path, *flags).code == 0
    return path


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("flags", [["--yes"], ["--yes", "--format", "json"]], ids=str)
def test_a_plan_that_a_policy_refuses_is_4_before_any_action_and_every_policy_is_named(
    cli, cluster: ClusterStandIn, fits: Path, flags: list[str], saved: bool
) -> None:
    fleet = under(fits, THRESHOLDS)
    shown = cli("apply", *([save(cli, fleet)] if saved else ["-f", fleet]), *flags)
    assert shown.code == 4
    assert "error: refused by the policy of the fleet, for 2 reasons; nothing was started" in shown.err
    assert f"policy: the plan creates 3 replicas, against spec.policy.maxNewReplicas: 1 at {fleet}:5:" in shown.err
    assert "policy: the plan takes 16 GPUs, against spec.policy.maxNewGpus: 8 at " in shown.err
    assert "--force lifts it for this run" in shown.err
    assert cluster.writes() == []


def test_json_names_every_refusing_policy_too(cli, fits: Path) -> None:
    told = cli("apply", "-f", under(fits, THRESHOLDS), "--yes", "--format", "json").summary
    assert told["exitCode"] == 4
    assert "maxNewReplicas: 1" in told["message"]
    assert "maxNewGpus: 8" in told["message"]


def test_of_many_findings_the_first_are_shown_and_the_rest_counted(cli, fits: Path) -> None:
    model = fits.read_text().partition("  models:\n")[2].partition("  - key: org/two")[2]
    many = "".join(f"  - key: org/m{number}{model}" for number in range(25))
    under(fits, "{protectedModels: ['org/m*']}").write_text(fits.read_text() + many)
    told = cli("apply", "-f", fits, "--yes", "--format", "json")
    assert told.err.count("policy: ") == 21
    assert "error: refused by the policy of the fleet, for 25 reasons" in told.err
    assert "policy: and 5 more; `fleetctl plan --format json` lists them" in told.err
    assert "and 5 more" in told.summary["message"]


def test_the_whole_plan_is_shown_beside_the_refusal(cli, fits: Path) -> None:
    out = cli("apply", "-f", under(fits, THRESHOLDS), "--yes").out
    assert "Refused by policy" in out
    assert out.rstrip().endswith("Plan: 3 to create, 0 blocked, 0 held, 0 to remove (fleetctl never removes); "
                                 "refused by policy")


def test_there_is_no_question_about_a_refused_plan(cli, cluster: ClusterStandIn, fits: Path) -> None:
    shown = cli("apply", "-f", under(fits, THRESHOLDS), typed="y\n")
    assert shown.code == 4
    assert "[y/N]" not in shown.err
    assert cluster.writes() == []


@pytest.mark.parametrize("saved", [False, True])
def test_force_lifts_thresholds_and_says_so(cli, cluster: ClusterStandIn, fits: Path, saved: bool) -> None:
    fleet = under(fits, THRESHOLDS)
    shown = cli("apply", *([save(cli, fleet)] if saved else ["-f", fleet]), "--yes", "--force")
    assert shown.code == 0
    assert "warning: lifted by --force: spec.policy.maxNewReplicas: 1; the plan creates 3 replicas" in shown.err
    assert ("Policy: lifted by --force" in shown.out) is not saved
    assert len(cluster.jobs) == 1


def test_a_plan_that_was_made_with_force_needs_it_no_more(cli, cluster: ClusterStandIn, fits: Path) -> None:
    plan = save(cli, under(fits, THRESHOLDS), "--force")
    written = json.loads(plan.read_text())
    assert written["options"]["force"] is True
    assert {finding["lifted"] for finding in written["policy"]} == {True}
    assert cli("apply", plan, "--yes").code == 0
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("saved", [False, True])
def test_force_does_not_lift_what_is_protected(cli, cluster: ClusterStandIn, fits: Path, saved: bool) -> None:
    fleet = under(fits, FORBIDDEN)
    shown = cli("apply", *([save(cli, fleet, "--force")] if saved else ["-f", fleet]), "--yes", "--force")
    assert shown.code == 4
    assert "refused by the policy of the fleet; nothing was started" in shown.err
    assert "protectedModels: org/two" in shown.err
    assert "no flag lifts this; --exclude org/two plans the rest" in shown.err
    assert cluster.writes() == []


def test_what_the_message_proposes_works(cli, cluster: ClusterStandIn, fits: Path) -> None:
    assert cli("apply", "-f", under(fits, FORBIDDEN), "--yes", "--force", "--exclude", "org/two").code == 0
    assert len(cluster.jobs) == 1


def test_saving_a_plan_that_is_refused_says_what_apply_will_do(cli, fits: Path) -> None:
    under(fits, THRESHOLDS)
    shown = cli("plan", "-f", fits, "--out", fits.with_name("p"), "--detailed-exitcode")
    assert shown.code == 4
    assert "`fleetctl apply` will refuse it: it exceeds a threshold" in shown.err
    assert "apply it with --force" in shown.err


def test_a_policy_that_is_satisfied_changes_nothing(cli, cluster: ClusterStandIn, fits: Path) -> None:
    shown = cli("apply", "-f", under(fits, "{maxNewReplicas: 3, maxNewGpus: 16, maxChangePercent: 1}"), "--yes")
    assert (shown.code, "by policy" in shown.out, "warning" in shown.err) == (0, False, False)
