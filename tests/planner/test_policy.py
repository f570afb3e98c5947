"""Policies of the fleet file: what refuses a plan, what --force lifts, and that the plan itself does not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import KEYS, PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import Policy
from fleetctl.documents.plan import Plan
from fleetctl.documents.position import Position
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.policy import detailed_exit_code, protecting, refusing

NODES: list[dict[str, Any]] = [{"name": "a", "gpus": 8, "labels": {"pool": "x"}}, {"name": "b", "gpus": 8}]
FOUR = {"key": "org/m", "replicas": 4, "gpus": 1}


def under(fleet: ResolvedFleet, **policy: Any) -> ResolvedFleet:
    """The fleet with a policy, each key on its own line."""
    places = {key: Position(file="prod.yaml", line=6 + number, column=21) for number, key in enumerate(policy)}
    return replace(fleet, policy=Policy.model_validate(policy), policy_places=places)


def planned(
    *models: dict[str, Any], nodes: list[dict[str, Any]] = NODES, replicas: list[dict[str, Any]] | None = None,
    force: bool = False, **policy: Any,
) -> Plan:
    fleet = under(short_fleet({"models": list(models) or [FOUR]}), **policy)
    return plan_for(fleet, short_inventory({"nodes": nodes, "replicas": replicas or []}), force=force)


def codes(plan: Plan) -> list[str]:
    return [finding.code for finding in plan.policy]


def test_a_fleet_without_a_policy_refuses_nothing() -> None:
    assert planned().policy == []


@pytest.mark.parametrize(("policy", "codes_found"), [
    ({"maxNewReplicas": 4}, []), ({"maxNewReplicas": 3}, ["MAX_NEW_REPLICAS"]),
    ({"maxNewReplicas": 0}, ["MAX_NEW_REPLICAS"]),
    ({"maxNewGpus": 4}, []), ({"maxNewGpus": 3}, ["MAX_NEW_GPUS"]),
    ({"maxNewReplicas": 1, "maxNewGpus": 1, "protectedModels": ["org/*"]},
     ["MAX_NEW_REPLICAS", "MAX_NEW_GPUS", "PROTECTED_MODEL"]),
])
def test_a_threshold_is_the_last_value_that_passes_and_all_are_reported_at_once(
    policy: dict[str, Any], codes_found: list[str]
) -> None:
    plan = planned(**policy)
    assert codes(plan) == codes_found
    assert plan.exit_code == (4 if codes_found else 2)


def test_a_message_has_the_action_the_limit_its_key_and_position_and_the_flag() -> None:
    [finding] = planned(maxNewReplicas=3).policy
    assert finding.message == ("the plan creates 4 replicas, against spec.policy.maxNewReplicas: 3 at prod.yaml:6:21; "
                               "--force lifts it for this run")
    assert (finding.key, finding.limit, finding.found) == ("spec.policy.maxNewReplicas", "3", "creates 4 replicas")
    assert finding.source == Position(file="prod.yaml", line=6, column=21)
    assert (finding.liftable, finding.lifted) == (True, False)


def test_shares_of_cards_count_to_a_ten_thousandth() -> None:
    quarter = {"key": "m", "replicas": 3, "gpus": 0.25}
    assert codes(planned(quarter, maxNewGpus=0.75)) == []
    assert codes(planned({**quarter, "replicas": 7}, maxNewGpus=1.75)) == []
    [finding] = planned(quarter, maxNewGpus=0.7499).policy
    assert (finding.found, finding.limit) == ("takes 0.75 GPU", "0.7499")


def test_every_member_of_a_gang_counts() -> None:
    gang = {"key": "m", "replicas": 1, "gang": {"gpus": 8, "workers": 1}}
    assert codes(planned(gang, maxNewGpus=16)) == []
    assert [one.found for one in planned(gang, maxNewGpus=15).policy] == ["takes 16 GPUs"]


def live(count: int, model: str = "org/m") -> list[dict[str, Any]]:
    return [{"model": model, "id": number, "node": "a", "gpus": 0.1} for number in range(count)]


def growing(to: int, running: int, percent: int, model: str = "org/m") -> Plan:
    return planned({"key": model, "replicas": to, "gpus": 0.1}, {"key": "other", "replicas": 0},
                   replicas=live(running, model), maxChangePercent=percent)


def test_change_is_relative_to_the_live_replicas_of_the_fleet() -> None:
    assert codes(growing(15, 10, percent=50)) == []
    [finding] = growing(16, 10, percent=50).policy
    assert finding.found == "creates 6 replicas beside 10 live ones, which is 60 %"


@pytest.mark.parametrize(("to", "running", "found"), [(50, 9, []), (50, 10, ["MAX_CHANGE_PERCENT"]), (50, 0, [])])
def test_a_percentage_is_checked_only_with_ten_or_more_live_replicas(to: int, running: int, found: list[str]) -> None:
    assert codes(growing(to, running, percent=10)) == found


def test_change_is_not_relative_to_replicas_of_others() -> None:
    foreign = [{**one, "fleet": "other"} for one in live(12, "theirs")]
    plan = planned({"key": "m", "replicas": 5, "gpus": 0.1}, replicas=foreign, maxChangePercent=1)
    assert codes(plan) == []


def test_a_share_just_above_the_limit_does_not_look_equal_to_it() -> None:
    plan = planned({"key": "m", "replicas": 2_003, "gpus": 0.0001}, nodes=[{"name": "a", "gpus": 8}],
                   replicas=[{"model": "m", "id": number, "node": "a", "gpus": 0.0001} for number in range(1_999)],
                   maxChangePercent=0)
    assert [one.found for one in plan.policy] == ["creates 4 replicas beside 1999 live ones, which is 0.3 %"]


def test_a_protected_model_is_refused_alone_and_by_name() -> None:
    plan = planned(FOUR, {"key": "free", "replicas": 1, "gpus": 1}, protectedModels=["org/m"])
    [finding] = plan.policy
    assert (finding.code, finding.model, finding.liftable) == ("PROTECTED_MODEL", "org/m", False)
    assert finding.message == ("the plan creates 4 replicas of org/m, against spec.policy.protectedModels: org/m at "
                               "prod.yaml:6:21; no flag lifts this; --exclude org/m plans the rest")


def test_the_flag_in_a_message_can_be_pasted_whatever_the_key() -> None:
    [finding] = planned({**FOUR, "key": "$(reboot)"}, protectedModels=["*"]).policy
    assert "--exclude '$(reboot)' plans the rest" in finding.message


def test_a_protected_model_with_nothing_to_create_is_not_refused() -> None:
    assert codes(planned({**FOUR, "replicas": 0}, protectedModels=["*"])) == []


@pytest.mark.parametrize(("pattern", "key", "named"), [
    ("org/m", "org/m", True), ("org/m", "org/m2", False), ("org/*", "org/m/x", True), ("*", "anything", True),
    ("*-70B", "meta/Llama-70B", True), ("*-70b", "meta/Llama-70B", False), ("m?", "mx", False), ("m?", "m?", True),
    ("a[b]", "ab", False), ("a[b]", "a[b]", True), ("a[b]*", "a[b]c", True), ("", "m", False), ("a*c", "a\nc", True),
    ("*a" * 40, "a" * 511 + "b", False),
])
def test_only_a_star_is_special_in_a_pattern(pattern: str, key: str, named: bool) -> None:
    assert protecting([pattern], key) == (pattern if named else None)


def selecting(selector: dict[str, str], **allowed: Any) -> list[str]:
    plan = planned({"key": "m", "replicas": 1, "gpus": 1, "selector": selector}, allowedSelectors=allowed)
    return [finding.message for finding in plan.policy]


@pytest.mark.parametrize(("expression", "allowed", "fine"), [
    ("x", ["x"], True), ("x", ["y"], False), ("x", [], True), ("in(x, z)", ["z", "x", "w"], True),
    ("in(x, z)", ["x"], False), ("!y", ["x"], False), ("!y", [], True), ("!in(y, z)", ["!in(z, y)"], True),
    ("x", ["in(x, y)"], True), ("x", ["!y"], False),
])
def test_a_selector_may_choose_only_allowed_values(expression: str, allowed: list[str], fine: bool) -> None:
    assert (selecting({"pool": expression}, pool=allowed) == []) is fine


def test_a_label_that_is_not_allowed_is_reported_with_the_allowed_ones() -> None:
    [message] = selecting({"pool": "x"}, zone=[], rack=["r1"])
    assert message == ("the plan selects nodes of m by the label pool, against spec.policy.allowedSelectors: "
                       "[rack, zone] at prod.yaml:6:21; no flag lifts this")


def test_a_value_that_is_not_allowed_is_reported_with_the_allowed_ones() -> None:
    [message] = selecting({"pool": "x"}, pool=["y", "z"])
    assert message == ("the plan selects nodes of m by pool: x, against spec.policy.allowedSelectors: pool: [y, z] at "
                       "prod.yaml:6:21; no flag lifts this")


def test_a_reason_points_at_its_own_entry_of_a_list_or_mapping(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  policy:
    protectedModels:
      - other/*
      - org/*
    allowedSelectors:
      zone: []
      pool: [y]
    quotas:
      - {selector: {team: a}, gpus: 4}
      - {selector: {team: b}, replicas: 0}
  models:
    - key: org/m
      replicas: 1
      workers: [{name: main, members: [{nodeSelector: {pool: x}, resources: {gpus: 1}, engine: {command: [run]}}]}]
    - key: b
      replicas: 1
      labels: {team: b}
      workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [run]}}]}]
""")
    plan = plan_for(load_fleet([str(file)]), short_inventory({"nodes": NODES}))
    at = {one.key: (one.source.line, one.source.column) if one.source else None for one in plan.policy}
    assert at == {"spec.policy.protectedModels": (8, 9), "spec.policy.allowedSelectors": (11, 13)}
    assert all(f"{one.source}" in one.message for one in plan.policy)
    [quota] = plan.blocked
    assert quota.message.endswith(f"spec.policy.quotas: team=b at {file}:14:9")


def test_models_without_a_selector_or_without_actions_are_not_checked() -> None:
    idle = {"key": "idle", "replicas": 0, "gpus": 1, "selector": {"pool": "x"}}
    assert codes(planned(FOUR, idle, allowedSelectors={})) == []


def test_a_selector_of_several_members_is_reported_once() -> None:
    gang = {"key": "m", "replicas": 1, "gang": {"gpus": 1, "workers": 2, "selector": {"pool": "x"}}, "ranksPerNode": 3}
    assert codes(planned(gang, allowedSelectors={})) == ["SELECTOR_NOT_ALLOWED"]


def test_force_lifts_thresholds_and_is_recorded() -> None:
    plan = planned(force=True, maxNewReplicas=1, maxNewGpus=1)
    assert [(one.liftable, one.lifted) for one in plan.policy] == [(True, True), (True, True)]
    assert all(one.message.endswith("; lifted by --force") for one in plan.policy)
    assert plan.options.force
    assert plan.exit_code == 2


def test_force_lifts_nothing_else() -> None:
    plan = planned({**FOUR, "selector": {"pool": "x"}}, force=True, maxNewReplicas=1, protectedModels=["*"],
                   allowedSelectors={})
    assert [one.code for one in refusing(plan.policy)] == ["PROTECTED_MODEL", "SELECTOR_NOT_ALLOWED"]
    assert plan.exit_code == 4


def test_findings_that_refuse_come_before_lifted_ones() -> None:
    plan = planned(force=True, maxNewReplicas=1, protectedModels=["*"])
    assert [(one.code, one.lifted) for one in plan.policy] == [("PROTECTED_MODEL", False), ("MAX_NEW_REPLICAS", True)]


@pytest.mark.parametrize(("actions", "blocked", "refused", "code"), [
    (0, 0, 0, 0), (1, 0, 0, 2), (0, 1, 0, 3), (1, 1, 0, 3), (1, 0, 1, 4), (1, 1, 1, 4),
])
def test_refused_takes_precedence_over_partial_and_partial_over_changes(
    actions: int, blocked: int, refused: int, code: int
) -> None:
    assert detailed_exit_code(actions=actions, blocked=blocked, refused=refused) == code


Policies = st.fixed_dictionaries({}, optional={
    "maxNewReplicas": st.integers(0, 6), "maxNewGpus": st.sampled_from([0, 0.5, 1, 3]),
    "maxChangePercent": st.integers(0, 100), "protectedModels": st.lists(st.sampled_from([*KEYS, "org/*", "m*"])),
    "allowedSelectors": st.dictionaries(st.sampled_from(["pool", "zone"]), st.lists(st.sampled_from(["x", "y", "z"]))),
})
VERDICT = {"policy", "exit_code", "plan_id", "options"}


@settings(max_examples=cases(40), suppress_health_check=list(HealthCheck))
@given(planning_inputs(), Policies)
def test_a_policy_changes_the_exit_code_and_never_the_actions(
    inputs: PlanningInputs, policy: dict[str, Any]
) -> None:
    fleet, inventory = inputs
    free, bound, forced = (plan_for(fleet, inventory), plan_for(under(fleet, **policy), inventory),
                           plan_for(under(fleet, **policy), inventory, force=True))
    assert free.model_dump(exclude=VERDICT) == bound.model_dump(exclude=VERDICT) == forced.model_dump(exclude=VERDICT)
    assert (bound.exit_code == 4) == bool(bound.policy)
    assert bound.policy == [] or bound.actions != []
    assert sorted(one.code for one in bound.policy) == sorted(one.code for one in forced.policy)
    assert refusing(forced.policy) == [one for one in bound.policy if not one.liftable]
    assert refusing(forced.policy) == refusing(bound.policy, force=True)
    assert forced.exit_code == (4 if refusing(forced.policy) else free.exit_code)
