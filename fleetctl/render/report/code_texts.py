"""What each code of a finding means, in a few words, and the page that explains it."""

from __future__ import annotations

from fleetctl.problem import CODES

BLOCKED = {
    "NO_NODES": "no node is alive",
    "NODE_SELECTOR_MISMATCH": "no node has the labels the selector asks for",
    "CORDONED": "the nodes are cordoned, by a note or by a node policy of the fleet file",
    "NODE_COOLING": "what was started on the nodes has failed several times in a row",
    "NODE_DRAINING": "the nodes are draining",
    "SLOTS_FULL": "the nodes hold the most replicas of this model that their cap allows",
    "SPREAD_FULL": "every value of the spread label holds the most replicas of this model that it allows",
    "INSUFFICIENT_GPU": "too few free GPUs on one node",
    "INSUFFICIENT_VRAM": "not enough free memory on a card",
    "INSUFFICIENT_CPU": "too few free CPUs on the nodes with enough cards",
    "INSUFFICIENT_MEMORY": "not enough host memory on the nodes with enough of everything else",
    "CARD_IN_USE": "cards are free for Ray, but another process uses their memory",
    "CARD_COOLING": "what was started on the cards has failed several times in a row",
    "CARD_MEMORY_UNKNOWN": "VRAM is claimed, and the cluster does not report the memory of the card",
    "GANG_NEEDS_NODES": "fewer nodes fit than the gang has members to place",
    "SAME_LABEL_DOMAIN": "enough nodes fit, but not inside one value of sameLabel",
    "QUOTA": "a quota of the fleet's policy allows no more",
    "UPDATE_NEEDS_ROOM": "no room for a replica of the new spec beside the outdated ones, which go on serving",
    "WAITS_FOR_NODES": "it would run on nodes that the autoscaler may add",
    "MAX_NODES": "the autoscaler may add no more nodes of the type it needs",
    "COOLING_DOWN": "it has failed several times in a row, and waits",
    "CLAIMED_BY_FLEET": "the model is live under another fleet",
}
POLICY = {
    "MAX_NEW_REPLICAS": "more new replicas than the policy of the fleet allows",
    "MAX_NEW_GPUS": "more GPUs for new replicas than the policy of the fleet allows",
    "MAX_CHANGE_PERCENT": "more new replicas per hundred live ones than the policy of the fleet allows",
    "PROTECTED_MODEL": "a model the policy of the fleet protects",
    "SELECTOR_NOT_ALLOWED": "a node selector the policy of the fleet does not allow",
    "POLICY_CHANGED": "a change alters the policy it is judged by",
}
SEEN = {
    "SPEC_CHANGED": "a replica runs with an older spec than the file's",
    "SELECTOR_NO_LONGER_MATCHES": "a replica runs where its selector no longer allows",
    "ABOVE_SLOT_CAP": "more replicas run on a node than its cap allows",
    "RESTARTING": "a replica ended and is being started again",
    "LOST": "a replica is live for Ray and cannot serve",
    "BASE_BROKEN": "the files that a change is measured against have errors",
    "HELD": "more runs than wanted, and all of it is kept",
    "CREATE": "replicas would be created",
    "PREFETCH": "nodes would fetch weights to keep them on their disks",
    "UNMANAGED": "capacity in use by other than this fleet",
    "SLOTS_LABEL_IGNORED": "a node label for the slot cap that is not a number",
    "SLOTS_LABEL_OVERRULED": "a node label for the slot cap that the fleet file overrules",
}
DIFFERENCE = {
    "ADDITIVE": "a change after which more may be created",
    "NONE": "a change that touches nothing that runs",
    "DRIFT": "a change after which running replicas keep the old spec",
    "HELD": SEEN["HELD"],
}
RUN = {
    "PARTIAL": "a run after which some wanted replicas are missing",
    "DIED": "a run that ended without a summary",
    "LOG_GONE": "a run whose log is gone, so its result is not known",
    "LOCK_HELD": "a run that did nothing, because another run held the lock",
    "PLAN_USED": "a run that did nothing, because its saved plan was already applied",
    "NOT_BEGUN": "a run that ended before it did anything",
    "INTERRUPTED": "a run that was stopped",
    "WAITING": "a run that waits for the lock of its fleet",
    "RUNNING": "a run in progress",
}
OUTCOME = {
    "ENGINE_EXITED": "an engine that ended before it was ready",
    "STARTUP_TIMEOUT": "a replica that was not ready in time",
    "WEIGHTS_FAILED": "weights that neither a replica nor an origin gave",
    "PORT_IN_USE": "a probe port that another server uses",
    "ENV_MISSING": "a variable that the node does not have",
    "UNRESOLVED_VARIABLE": "an unknown $(FLEETCTL_...) variable",
    "MEMBER_FAILED": "a member of a gang that could not be started",
    "MEMBER_SILENT": "a member of a gang that did not answer the others",
    "START_ERROR": "another error while a replica started",
    "REPLICA_DIED": "a replica that died without a message from fleetctl",
    "NODE_TAKEN": "a node with less free than the plan expected",
    "NODE_GONE": "a node that is dead",
    "NEVER_CONSTRUCTED": "an actor that Ray calls ALIVE and whose constructor never returned",
    "CARDS_UNCHECKED": "a replica that is ready, and whose cards were not checked before it started",
    "NOT_ANSWERING": "a replica that is ready, and whose process does not answer",
    "RELOADED": "a replica that is ready, and has reloaded its weights in place",
    "RELOAD_ENDED": "a replica whose engine ended when it was asked to reload its weights; Ray restarts it",
    "WAITS_TURN": "a replica that reloads after another of its model, by the next apply",
    "SPEC_MOVED": "a replica that has reloaded since the plan was made, so that it is left as it is",
    "RELOAD_FAILED": "a replica whose engine did not reload its weights, or of which it is not known",
    "NOT_FOUND": "a replica that was gone before anything was done to it",
    "NAME_TAKEN": "a replica name that another actor has",
    "REFUSED_BY_RAY": "a replica that Ray did not take",
    "NO_WORKER": "a replica for which Ray has not started a worker",
    "STILL_STARTING": "a replica that takes longer than the apply waits",
    "LOCK_LOST": "a replica that was not started because the lock was lost",
    "AGENT_ERROR": "an error in fleetctl itself",
    "TARGET_REACHED": "a replica that was no longer needed",
}
"""Codes of `ReplicaOutcome` that are not in plans."""
VERB = {
    "STILL_THERE": "a replica that was ended, and whose actor Ray still had after 30 s",
    "NOT_DONE": "a replica of a fleet whose part of the run failed",
    "RESTARTS_USED": "a replica that Ray would not start again",
    "TOO_FEW_READY": "a replica that stays, because fewer than promised would be ready without it",
    "NEEDED": "a replica on a node that is drained, which no ready one replaces yet",
    "MAY_GO": "a replica on a node that is drained, which is replaced",
    "DRY_RUN": "a replica that would be created",
}
"""Codes of outcomes of the explicit verbs."""
LEVEL = {
    "NO_WEIGHTS": "a replica without `weights` in the fleet file",
    "NOT_READY": "a replica that was never ready, so that its weights are not known",
    "WARM_BUDGET": "a node with as much WARM as it may have",
    "NO_MEMORY": "a node on which Ray has less memory free than the weights have bytes",
    "NOT_HELD": "weights that could not be loaded into memory",
    "NOT_ON_DISK": "weights that are not complete on the disk of a node",
}
"""Codes of a replica that could not go to a level, and stays as it is."""
TEXTS = {**VERB, **LEVEL, **OUTCOME, **RUN, **CODES, **BLOCKED, **POLICY, **DIFFERENCE, **SEEN}
PAGES = {**dict.fromkeys(CODES, "docs/fleet-file.md"), **dict.fromkeys(BLOCKED, "docs/placement.md"),
         **dict.fromkeys(POLICY, "docs/policy.md"), **dict.fromkeys(DIFFERENCE, "docs/diff.md"),
         **dict.fromkeys(SEEN, "docs/plan.md"), **dict.fromkeys(RUN, "docs/history.md"),
         **dict.fromkeys(OUTCOME, "docs/apply.md"), **dict.fromkeys(VERB, "docs/verbs.md"),
         **dict.fromkeys(LEVEL, "docs/weights.md")}


def code_text(code: str) -> str:
    """Return what a code means; an unknown code is its own text."""
    return TEXTS.get(code, code)


def help_page(code: str) -> str:
    """Return the page of the documentation that explains a code."""
    return PAGES.get(code, "docs/index.md")
