"""Imports LeaderWorkerSets (leaderworkerset.x-k8s.io/v1): a group of pods is a gang, one Leader and its Workers.

A DisaggregatedSet (disaggregatedset.x-k8s.io) has a LeaderWorkerSet for each of its roles: each becomes a model.
"""

from __future__ import annotations

from typing import Any

from fleetctl.importers.container import startup_seconds
from fleetctl.importers.draft import Draft, duration_text, one_group
from fleetctl.importers.objects import labels_in, member, read_metadata
from fleetctl.importers.reading import Reading, is_duplicate

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
    placement = _placement(reading, reading.child("spec"))
    _add(reading, reading.child("spec"), key, draft, read_metadata(reading, key), placement)


def read_disaggregated_set(reading: Reading, key: str, draft: Draft) -> None:
    """Add a model for each role of a DisaggregatedSet to the draft; a set without roles is reported and left out.

    A role has the fields of a LeaderWorkerSet, before v1 without a `spec` around them.
    """
    labels, spec = read_metadata(reading, key), reading.child("spec")
    slices, roles = spec.count("slices", "slices"), spec.items("roles")
    spec.lose("placement", "each role is placed by itself: write placement for its model")
    if not roles:
        reading.lose(None, f"no roles: nothing of {key} is imported")
    elif len(roles) > 1:
        spec.note("roles", "each role becomes a model of its own: the ratio of their replicas is not kept if only some "
                           "fit", "lost")
    for index, role in enumerate(roles):
        name = f"{key}/{role.text('name') or index}"
        if is_duplicate(role, name, draft):
            continue
        role.goes_to(name)
        own = role.child("spec") if "spec" in role else role
        own.lose("scaling", "nothing scales by itself: write the number of replicas")
        role.lose("scaling", "nothing scales by itself: write the number of replicas")
        placement = _placement(role, own)
        own_labels = labels_in(role.child("metadata"))
        role.child("metadata").child("annotations").lose_rest("annotations are not kept")
        _add(role, own, name, draft, {**labels, **own_labels}, placement, slices)


def _add(reading: Reading, spec: Reading, key: str, draft: Draft, labels: dict[str, str], placement: dict[str, Any],
         times: int = 1) -> None:
    """Add the model of a LeaderWorkerSet, `reading`, with `times` its replicas; one without pods is reported."""
    template = spec.child("leaderWorkerTemplate")
    members, startup = _members(template, key, template.count("size", "pods", least=1))
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
    replicas = times * spec.count("replicas", "replicas")
    if times > 1:
        spec.note("replicas", f"{replicas} replicas in the {times} slices together", "changed")
    draft.add({"key": key, "replicas": replicas, "labels": labels,
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
    seconds = [time for pod in pods for container in pod.child("spec").items("containers")
               if (time := startup_seconds(container)) is not None]
    return found, max(seconds, default=None)


def _placement(reading: Reading, spec: Reading) -> dict[str, Any]:
    """Return the topology that a group stays inside; excluding other groups from it has no counterpart."""
    size = spec.child("leaderWorkerTemplate").count("size", "pods", least=1)
    annotations = reading.child("metadata").child("annotations")
    topology = annotations.text(_EXCLUSIVE)
    annotations.lose(_SUBGROUP, "there are no subgroups: write several worker groups")
    if size > 1 and topology != _HOSTNAME:
        spec.child("leaderWorkerTemplate").note(
            "size", "pods of a group may share a node; members need placement.ranksPerNode for that", "todo")
    if topology is None:
        return {}
    if size == 1:
        annotations.lose(_EXCLUSIVE, "other pods may be in the same domain")
        return {}
    annotations.note(_EXCLUSIVE, f"kept as placement.sameLabel: {topology}, a label that the Ray nodes must have; "
                                 "other groups may be in the same domain", "lost")
    return {"sameLabel": topology, **({"ranksPerNode": size} if topology == _HOSTNAME else {})}
