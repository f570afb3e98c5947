# The tests of plan.rego: `conftest verify -p docs/policy`, or `opa test docs/policy`.
package main

import rego.v1

holds(case) if {
	deny == case.deny with input as case.plan with data.quotas as case.quotas
}

test_a_team_within_its_quota_is_allowed if holds(cases.a_team_within_its_quota_is_allowed)

test_all_models_of_a_team_count_together if holds(cases.all_models_of_a_team_count_together)

test_a_team_without_a_quota_takes_nothing if holds(cases.a_team_without_a_quota_takes_nothing)

test_a_team_that_takes_no_gpu_needs_no_quota if holds(cases.a_team_that_takes_no_gpu_needs_no_quota)

test_a_secret_from_the_node_is_allowed if holds(cases.a_secret_from_the_node_is_allowed)

test_a_secret_in_the_fleet_file_is_denied if holds(cases.a_secret_in_the_fleet_file_is_denied)
