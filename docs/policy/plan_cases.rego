# The cases of plan_test.rego: for each a plan, quotas, and the expected denials.
package main

import rego.v1

action(model, gpus) := {"model": model, "specHash": "abc", "members": [{"node": "node-a", "gpus": gpus}]}

plan(gpus_by_model, env) := {
	"actions": [action(model, gpus) | gpus := gpus_by_model[model]],
	"specs": {"abc": {"workers": [{"members": [{"engine": {"env": env}}]}]}},
	"fleet": {"git": {"commit": "0123456789", "dirty": false}},
}

cases := {
	"a_team_within_its_quota_is_allowed": {
		"plan": plan({"lab/a": 40000, "lab/b": 40000}, {}),
		"quotas": {"lab": 8}, "deny": set(),
	},
	"all_models_of_a_team_count_together": {
		"plan": plan({"lab/a": 40000, "lab/b": 42500}, {}),
		"quotas": {"lab": 8}, "deny": {"team lab: the plan takes 8.25 GPUs, the quota is 8"},
	},
	"a_team_without_a_quota_takes_nothing": {
		"plan": plan({"new/a": 2500}, {}),
		"quotas": {"lab": 8}, "deny": {"team new: the plan takes 0.25 GPUs, the quota is 0"},
	},
	"a_team_that_takes_no_gpu_needs_no_quota": {
		"plan": plan({"new/a": 0}, {}),
		"quotas": {}, "deny": set(),
	},
	"a_secret_from_the_node_is_allowed": {
		"plan": plan({"lab/a": 0}, {"HF_TOKEN": {"fromNode": "HF_TOKEN"}, "MODE": "***"}),
		"quotas": {}, "deny": set(),
	},
	"a_secret_in_the_fleet_file_is_denied": {
		"plan": plan({"lab/a": 0}, {"HF_TOKEN": "***"}),
		"quotas": {}, "deny": {"lab/a: HF_TOKEN is in the fleet file; write {fromNode: HF_TOKEN}"},
	},
}
