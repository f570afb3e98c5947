"""The meaning of each finding code in a few words, and the documentation page that explains it."""

from __future__ import annotations

from fleetctl.problem import CODES

BLOCKED = {
    "NO_NODES": "no node is alive",
    "NODE_SELECTOR_MISMATCH": "no node has the labels that the selector requires",
    "CORDONED": "the nodes are cordoned, by a note or by a node policy of the fleet file",
    "MODEL_TOO_LARGE": "the nodes' cards certainly cannot hold the model; `memoryCheck: warn` lifts the block",
    "NODE_COOLING": "replicas on the nodes have failed several times in a row",
    "NODE_DRAINING": "the nodes are draining",
    "SLOTS_FULL": "the nodes already have as many replicas of this model as their slot cap allows",
    "SPREAD_FULL": "every value of the spread label already has as many replicas of this model as it allows",
    "INSUFFICIENT_GPU": "too few free GPUs on one node",
    "INSUFFICIENT_VRAM": "not enough free memory on a card",
    "INSUFFICIENT_CPU": "too few free CPUs on the nodes with enough cards",
    "INSUFFICIENT_MEMORY": "not enough host memory on the nodes with enough cards and CPUs",
    "CARD_IN_USE": "cards are free for Ray, but another process uses their memory",
    "CARD_COOLING": "replicas on the cards have failed several times in a row",
    "CARD_MEMORY_UNKNOWN": "VRAM is claimed, and the cluster does not report the memory of the card",
    "GANG_NEEDS_NODES": "too few nodes fit for the members of the gang",
    "RANKS_SHARE_A_CARD": "Ray would put two ranks of a gang on one card",
    "SAME_LABEL_DOMAIN": "enough nodes fit, but not inside one value of sameLabel",
    "QUOTA": "a quota of the fleet's policy allows no more",
    "VARIANT_FULL": "each variant of the model has as many replicas as its max allows",
    "UPDATE_NEEDS_ROOM": "no room for a replica of the new spec beside the outdated ones, which keep serving",
    "WAITS_FOR_NODES": "it would run on nodes that the autoscaler may add",
    "MAX_NODES": "the autoscaler may not add more nodes of the required type",
    "COOLING_DOWN": "the model has failed several times in a row and is cooling down",
    "IMAGE_MISSING": "the image of an engine is not on its node",
    "CLAIMED_BY_FLEET": "the model is live under another fleet",
    "PAUSED": "a person has paused the model, or its fleet",
}
POLICY = {
    "MAX_NEW_REPLICAS": "more new replicas than the fleet's policy allows",
    "MAX_NEW_GPUS": "more GPUs for new replicas than the fleet's policy allows",
    "MAX_CHANGE_PERCENT": "more new replicas per hundred live ones than the fleet's policy allows",
    "PROTECTED_MODEL": "a model that the fleet's policy protects",
    "SELECTOR_NOT_ALLOWED": "a node selector that the fleet's policy does not allow",
    "POLICY_CHANGED": "a change alters the policy it is judged by",
}
OBSERVED = {
    "SPEC_CHANGED": "a replica runs with an older spec than the file's",
    "SELECTOR_NO_LONGER_MATCHES": "a replica runs where its selector no longer allows",
    "ABOVE_SLOT_CAP": "more replicas run on a node than its slot cap allows",
    "RESTARTING": "a replica ended and is being started again",
    "LOST": "a replica is live for Ray but cannot serve",
    "INVENTORY_CHANGED": "a change edits the inventory that it is planned on",
    "FILE_DIFFERS": "a fleet file in the checkout is not the one of the commit",
    "BASE_BROKEN": "the files of the base revision have errors",
    "HELD": "more replicas run than wanted; all are kept",
    "CREATE": "replicas would be created",
    "PREFETCH": "nodes would fetch weights to keep them on their disks",
    "UNMANAGED": "capacity in use outside this fleet",
    "MODEL_MAY_NOT_FIT": "a replica of a described model that, by an estimate, does not fit on its cards",
    "CARDS_UNREPORTED": "nodes that do not report all the cards that they offer to Ray",
    "SLOTS_LABEL_IGNORED": "a node label for the slot cap that is not a number",
    "SLOTS_LABEL_OVERRULED": "a node label for the slot cap that a note or the fleet file overrides",
}
DIFFERENCE = {
    "ADDITIVE": "a change that may create more replicas",
    "NONE": "a change that does not affect running replicas",
    "DRIFT": "a change after which running replicas keep the old spec",
    "HELD": OBSERVED["HELD"],
}
RUN = {
    "PARTIAL": "a run after which some wanted replicas are missing",
    "DIED": "a run that ended without a summary",
    "LOG_GONE": "a run whose log is gone, so its result is unknown",
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
    "WEIGHTS_FAILED": "weights that no replica and no origin could provide",
    "PORT_IN_USE": "a probe port that another server uses",
    "ENV_MISSING": "a variable that the node does not have",
    "UNRESOLVED_VARIABLE": "an unknown $(FLEETCTL_...) variable, or a circle of variables",
    "TEXT_TOO_LONG": "an argument or a variable that is too long for a process",
    "MEMBER_FAILED": "a member of a gang that could not be started",
    "MEMBER_SILENT": "a member of a gang that did not respond to the others",
    "START_ERROR": "another error while a replica started",
    "REPLICA_DIED": "a replica that died without a message from fleetctl",
    "NODE_TAKEN": "a node with less free capacity than the plan expected",
    "NODE_GONE": "a node that is dead",
    "NEVER_CONSTRUCTED": "an actor that Ray lists as ALIVE but whose constructor never returned",
    "CARDS_UNCHECKED": "a replica that is ready, but whose cards were not checked before it started",
    "OTHER_VARIANT": "a replica that is ready in the place of one of another variant, which failed in the same apply",
    "AFTER_PILOT": "replicas that the next apply creates, once a pilot of their spec is ready",
    "PILOT_FAILED": "replicas that were not created, because their pilot failed",
    "NOT_ANSWERING": "a replica that is ready, but whose process does not respond",
    "RELOADED": "a replica that is ready and has reloaded its weights in place",
    "RELOAD_ENDED": "a replica whose engine ended during the request to reload its weights; Ray restarts it",
    "WAITS_TURN": "a replica that the next apply reloads, after another of its model",
    "SPEC_MOVED": "a replica that has reloaded since the plan was made, so it is left as it is",
    "RELOAD_FAILED": "a replica whose engine failed to reload its weights, or whose result is unknown",
    "NOT_FOUND": "a replica that was gone before the run acted on it",
    "NAME_TAKEN": "a replica name that another actor has",
    "REFUSED_BY_RAY": "a replica that Ray did not accept",
    "NO_WORKER": "a replica for which Ray has not started a worker",
    "STILL_STARTING": "a replica that takes longer to start than the apply waits",
    "LOCK_LOST": "a replica that was not started because the lock was lost",
    "AGENT_ERROR": "an error in fleetctl itself",
    "TARGET_REACHED": "a replica that was no longer needed",
    "EVICTED": "a replica that was evicted while the apply waited for it or for others",
    "NO_LONGER_READY": "a replica that was ready, and no longer answers its readiness probe",
}
"""Codes of `ReplicaOutcome` that are not in plans."""
VERB = {
    "STILL_THERE": "a replica that was ended, but whose actor Ray still had after 30 s",
    "STILL_RUNNING": "a replica whose process does not answer, and of which something still runs or may",
    "NOT_DONE": "a replica of a fleet whose part of the run failed",
    "RESTARTS_USED": "a replica of an earlier fleetctl that Ray would not start again",
    "TOO_FEW_READY": "a replica that is kept, because fewer than promised would be ready without it",
    "NEEDED": "a replica on a draining node that no ready replica replaces yet",
    "MAY_GO": "a replica on a draining node that has been replaced",
    "DRY_RUN": "a replica that would be created",
}
"""Codes of outcomes of the explicit verbs."""
LEVEL = {
    "NO_WEIGHTS": "a replica without `weights` in the fleet file",
    "NOT_READY": "a replica that was never ready, so its weights are unknown",
    "WARM_BUDGET": "a node whose budget for WARM replicas is used up",
    "NO_MEMORY": "a node on which Ray has less free memory than the weights need",
    "NOT_HELD": "weights that could not be loaded into memory",
    "NOT_ON_DISK": "weights that are not complete on the disk of a node",
}
"""Codes of a replica that could not change its level and stays as it is."""
DOCTOR = {
    "CLUSTER_UNREACHABLE": "the dashboard does not answer",
    "CLUSTER_REFUSED": "the dashboard requires a token, or rejects the one given",
    "CLUSTER_NOT_READ": "the cluster could not be read, or no address is known",
    "CLOCK_SKEW": "the clocks of this machine and the cluster differ by more than a minute",
    "CLOCK_UNKNOWN": "the dashboard's answers do not tell the time",
    "RAY_TOO_OLD": "a version of Ray that an apply cannot use",
    "NO_TOKEN_NEEDED": "the dashboard answers whoever reaches it",
    "NOT_READ_WHOLE": "a part of the inventory is missing, so nothing is planned on it",
    "READING": "a warning of the inventory",
    "AUTOSCALER_SILENT": "Ray's autoscaler reports nothing any more",
    "JOB_LIST_UNREAD": "Ray's list of jobs does not answer, or could not be read",
    "JOB_LIST_LONG": "Ray's list of jobs is long, or slow to read",
    "AGENT_NOT_STARTED": "the latest run did not start",
    "NODES_NOT_ASKED": "the job that examines nodes did not start, or did not end",
    "RUN_NOT_STARTED": "a run has been waiting to start for more than 5 minutes",
    "RUN_LASTS": "a run has lasted more than 2 hours, and may hold its lock",
    "LEAKED_GROUP": "a placement group holds GPUs although its replica is gone",
    "LOCK_LEFT": "a run ended without releasing its lock; the next one takes it over",
    "NODE_SILENT": "no worker answered on a node",
    "GPU_COUNT": "the number of GPUs that a node offers to Ray is not its number of cards",
    "CARD_LOST": "a card that the driver counts and cannot open",
    "CARD_FAULTY": "a card whose memory has uncorrected errors, or must be replaced",
    "CARD_SHARED": "two Ray nodes report the same card",
    "ORPHAN_ENGINE": "an engine of a replica runs without it",
    "ORPHAN_CONTAINER": "a container of a replica's engine runs without it",
    "ENGINES_NICED": "engines get less of a node than Ray itself does",
    "FEW_OPEN_FILES": "engines may have few files open on a node",
    "LITTLE_LOCKED_MEMORY": "engines may lock little memory on a node with RDMA",
    "SMALL_SHARED_MEMORY": "a node has less than 1Gi of shared memory",
    "SHARED_MEMORY_FULL": "a node's shared memory is nearly full",
    "SHARED_MEMORY_LEFT": "a node has shared memory that ended engines have left",
    "DISK_FULL": "the disk of Ray's logs or temporary folder is nearly full",
    "WEIGHTS_WRONG": "a file of weights on a node's disk was not what its index says",
    "CORDON_ENDED": "the newest note about a node is an expired cordon",
    "CLAIM_REFUSED": "an actor says of itself what Ray does not confirm, so it does not count",
    "REPLICA_LOST": "a replica that is live for Ray but cannot serve",
    "FAILED_LATELY": "replicas of a model failed within the last day, and none became ready since then",
    "REPLICA_RESTARTS": "a replica that is being restarted, or was restarted at least 3 times",
    "CACHES_UNUSED": "compile caches of a replica that could not be used, or are not exchanged",
    "AGENT_OLD": "a replica that was started by an older fleetctl",
    "COMMAND_MISSING": "a command that is not on the PATH of a node that may run it",
    "VARIABLE_MISSING": "a variable for `fromNode` that a node lacks",
    "WORKDIR_MISSING": "a working folder that is not on a node, or cannot be entered there",
    "PORT_TAKEN": "a probe's fixed port that another process uses",
    "PORT_IN_RANGE": "a probe's fixed port that Linux may take for outgoing connections",
}
"""Codes of the doctor that plans and runs do not have."""
TEXTS = {**DOCTOR, **VERB, **LEVEL, **OUTCOME, **RUN, **CODES, **BLOCKED, **POLICY, **DIFFERENCE, **OBSERVED}
PAGES = {**dict.fromkeys(CODES, "docs/fleet-file.md"), **dict.fromkeys(BLOCKED, "docs/placement.md"),
         **dict.fromkeys(POLICY, "docs/policy.md"), **dict.fromkeys(DIFFERENCE, "docs/diff.md"),
         **dict.fromkeys(OBSERVED, "docs/plan.md"), **dict.fromkeys(RUN, "docs/history.md"),
         **dict.fromkeys(OUTCOME, "docs/apply.md"), **dict.fromkeys(VERB, "docs/verbs.md"),
         **dict.fromkeys(LEVEL, "docs/weights.md"), **dict.fromkeys(DOCTOR, "docs/doctor.md"),
         **dict.fromkeys(("MODEL_TOO_LARGE", "MODEL_MAY_NOT_FIT", "FL063"), "docs/memory.md"),
         "INVENTORY_CHANGED": "docs/ci.md"}


def code_text(code: str) -> str:
    """Return the meaning of a code; an unknown code is its own text."""
    return TEXTS.get(code, code)


def help_page(code: str) -> str:
    """Return the documentation page that explains a code."""
    return PAGES.get(code, "docs/index.md")
