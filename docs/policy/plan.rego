# Rules on a plan, for conftest or OPA:
#
#   fleetctl plan -f fleets/ --format json | conftest test -p docs/policy -d docs/policy/quotas.yaml -
#
# The input is a plan (schemas/plan.schema.json) with the values of engine environments masked.
package main

import rego.v1

# GPUs in a plan are integers of 1/10000.
one_gpu := 10000

# The team of a model is the part of its key before the first "/".
team_of(model) := split(model, "/")[0]

teams contains team_of(action.model) if some action in input.actions

new_gpus[team] := gpus if {
	some team in teams
	shares := [member.gpus |
		some action in input.actions
		team_of(action.model) == team
		some member in action.members
	]
	gpus := sum(shares) / one_gpu
}

# From -d quotas.yaml; a team without a quota has none, and without the file no team has one.
default quota(_) := 0

quota(team) := data.quotas[team]

# A plan takes no more new GPUs for a team than its quota.
deny contains msg if {
	some team, gpus in new_gpus
	gpus > quota(team)
	msg := sprintf("team %s: the plan takes %v GPUs, the quota is %v", [team, gpus, quota(team)])
}

# Secrets come from the node: a value in the fleet file is a string here (masked), a reference is an object.
deny contains msg if {
	some action in input.actions
	spec := input.specs[action.specHash]
	some name, value in spec.workers[_].members[_].engine.env
	is_string(value)
	regex.match(`(TOKEN|SECRET|PASSWORD|_KEY)$`, name)
	msg := sprintf("%s: %s is in the fleet file; write {fromNode: %s}", [action.model, name, name])
}

warn contains msg if {
	input.fleet.git.dirty
	msg := sprintf("commit %s has changes that are not committed", [input.fleet.git.commit])
}
