"""Imports LeaderWorkerSets (leaderworkerset.x-k8s.io/v1): a group of pods is a gang, one Leader and its Workers."""

from __future__ import annotations

from typing import Any

from fleetctl.importers.container import startup_seconds
from fleetctl.importers.draft import Draft, duration_text, one_group
from fleetctl.importers.objects import read_metadata
from fleetctl.importers.pod import member
from fleetctl.importers.reading import Reading

VARIABLES = {"LWS_LEADER_ADDRESS": "FLEETCTL_LEADER_ADDRESS", "LWS_GROUP_SIZE": "FLEETCTL_GROUP_SIZE",
             "LWS_WORKER_INDEX": "FLEETCTL_RANK"}
_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_SUBGROUP = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
_HOSTNAME = "kubernetes.io/hostname"
_RECREATES = "RecreateGroupOnPodRestart"
_LOST = {
    "rolloutStrategy": "an apply replaces nothing that runs; a changed shape is reported as drift",
    "networkConfig": "there are no services: the leader's address is in $(FLEETCTL_LEADER_ADDRESS)",
    "startupPolicy": "the engines of a gang start together, once all its members are placed",
}


def read_leader_worker_set(reading: Reading, key: str, draft: Draft) -> None:
    """Add the model of one LeaderWorkerSet to the draft; a set without pods is reported and left out."""
    reading.goes_to(key)
    spec = reading.child("spec")
    template = spec.child("leaderWorkerTemplate")
    size = template.count("size", "pods", least=1)
    placement = _placement(reading, size)
    read_metadata(reading, key)
    members, startup = _members(template, key, size)
    if not members:
        reading.lose(None, f"no pod: the model {key} is left out")
        return
    policy = template.text("restartPolicy")
    if policy not in (None, _RECREATES):
        template.note("restartPolicy", f"{policy}: a gang always restarts as a whole here, at most restart.max times",
                      "lost")
    template.lose("subGroupPolicy", "there are no subgroups: write several worker groups")
    template.lose("volumeClaimTemplates", "nothing is mounted: the weights must be on the nodes")
    spec.lose_each(_LOST)
    draft.add({"key": key, "replicas": spec.count("replicas", "replicas"),
               "startupTimeout": duration_text(startup) if startup else None, "placement": placement,
               "workers": one_group(members)}, reading.place)


def _members(template: Reading, key: str, size: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return the members, and the longest startup time of any of them in seconds, None if no probe sets one."""
    leader = template.child("leaderTemplate" if "leaderTemplate" in template else "workerTemplate")
    if not leader.names:
        return [], None
    home = ("workers", 0, "members")
    found = [{**({"role": "Leader"} if size > 1 else {}),
              **member(leader.goes_to(key, (*home, 0)), VARIABLES, probes_readiness=True)}]
    pods = [leader]
    if size > 1:
        worker = template.child("workerTemplate")
        pods.append(worker)
        worker.goes_to(key, (*home, 1))
        found.append({"role": "Worker", "count": size - 1,
                      **member(worker, VARIABLES, probes_readiness=worker.path == leader.path)})
        found[1]["engine"].pop("readiness", None)
    elif "leaderTemplate" in template:
        template.lose("workerTemplate", "not used: a group of one pod has no worker")
    seconds = [time for pod in pods for one in pod.child("spec").items("containers")
               if (time := startup_seconds(one)) is not None]
    return found, max(seconds, default=None)


def _placement(reading: Reading, size: int) -> dict[str, Any]:
    """Return the topology that a group stays inside; excluding other groups from it has no counterpart."""
    annotations = reading.child("metadata").child("annotations")
    topology = annotations.text(_EXCLUSIVE)
    annotations.lose(_SUBGROUP, "there are no subgroups: write several worker groups")
    if size > 1 and topology != _HOSTNAME:
        reading.child("spec").child("leaderWorkerTemplate").note(
            "size", "pods of a group may share a node; members need placement.ranksPerNode for that", "todo")
    if topology is None:
        return {}
    if size == 1:
        annotations.lose(_EXCLUSIVE, "other pods may be in the same domain")
        return {}
    annotations.note(_EXCLUSIVE, f"kept as placement.sameLabel: {topology}, a label that the Ray nodes must have; "
                                 "other groups may be in the same domain", "lost")
    return {"sameLabel": topology, **({"ranksPerNode": size} if topology == _HOSTNAME else {})}
