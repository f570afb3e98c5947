"""A real Ray of several raylets, in a process of its own that takes commands over two pipes, one JSON object per
line.

Run as `python ray_keeper.py READ_FD WRITE_FD`. When its pipe closes, it ends Ray and itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ray
from ray._private import state
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fleetctl.demo.lifecycle import free_port

HERE = Path(__file__).parent
NODE = {"object_store_memory": 80 << 20, "setup_worker_path": str(HERE / "setup_worker.py"),
        "worker_path": str(HERE / "default_worker.py")}
JOIN_S = 60.0
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
"""Linux's numbers for mounts, which Python does not know."""
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
LIVE = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING")


class Holder:
    """A foreign actor that only holds resources."""

    def ping(self) -> int:
        return os.getpid()


class ModelActor:
    """A foreign actor that says of itself what it was given: a liar."""

    def __init__(self, says: str) -> None:
        self._says = says

    def ping(self) -> int:
        return os.getpid()

    def __repr__(self) -> str:
        return self._says.replace("THIS NODE", ray.get_runtime_context().get_node_id())


def sleep_long() -> None:
    time.sleep(100_000)


def apart(mounts: dict, call: Callable[..., object], **given: object) -> object:
    """Return what `call` returns, made while this thread has mounts of its own: the processes that it starts keep them.
    """
    libc, folder = ctypes.CDLL(None, use_errno=True), Path.cwd()
    shared = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    try:
        failed = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        for path, own in mounts.items():
            Path(path).mkdir(parents=True, exist_ok=True)
            Path(own).mkdir(parents=True, exist_ok=True)
            failed = failed or libc.mount(own.encode(), path.encode(), None, MS_BIND, None)
        if failed:
            raise OSError(ctypes.get_errno(), "no mounts of its own")
        return call(**given)
    finally:
        libc.setns(shared, CLONE_NEWNS)
        os.close(shared)
        os.chdir(folder)


class Keeper:
    def __init__(self, **head: object) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={
            **NODE, "num_cpus": 2, "num_gpus": 0, "node_name": "head", "labels": {"fleet.io/node": "head"},
            "include_dashboard": True, "dashboard_host": "127.0.0.1", "dashboard_port": free_port(),
            "dashboard_agent_listen_port": free_port(),
            "include_log_monitor": False,  # it constantly reads every log, for drivers that print them
            **head,
        })
        ray.init(address=self.cluster.address, namespace="keeper", log_to_driver=False, logging_level="ERROR")
        self.nodes = {"head": self.cluster.head_node}
        self.tasks = []
        self.foreign_groups = []

    def address(self) -> str:
        return f"http://{self.cluster.webui_url}"

    def gcs(self) -> str:
        """The GCS address, for drivers."""
        return self.cluster.address

    def add(self, names: list, gpus: int = 2, cpus: int = 1, labels: dict | None = None,
            env: dict | None = None, memory: int | None = None, disks: str | None = None,
            own: dict | None = None) -> dict:
        """Add nodes; `env` is added to the environment of each node's raylet, and so of its reporter and workers.

        `memory` = bytes for Ray to grant; None = most of the host's. `disks` = a folder in which each node gets a
        folder for weights. `own` = folders, by the path at which each node sees a folder of its own: `{path: folder}`,
        where it has one of its name in `folder`; that takes root, or a user namespace.
        """
        more = {"memory": memory} if memory else {}
        for name in names:
            disk = {"FLEETCTL_CACHE_DIR": str(Path(disks, name))} if disks else {}
            add = self.cluster.add_node if own is None else partial(apart, {
                path: str(Path(folder, name)) for path, folder in own.items()}, self.cluster.add_node)
            self.nodes[name] = add(
                wait=False, num_cpus=cpus, num_gpus=gpus, node_name=name, env_vars={**(env or {}), **disk},
                labels={"fleet.io/node": name, **(labels or {})}, **NODE, **more)
        joined = {name: self.nodes[name].node_id for name in names}
        until = time.monotonic() + JOIN_S
        while not all(map(self.lives, joined.values())):  # only these nodes: others of the cluster may have been killed
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(names)} did not join in {JOIN_S:g} s")
            time.sleep(0.05)
        return joined

    def remove(self, name: str) -> None:
        node_id = self.nodes[name].node_id
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=True)
        while any(record["NodeID"] == node_id and record["Alive"] for record in ray.nodes()):
            time.sleep(0.05)

    def remove_if_there(self, name: str) -> None:
        if name in self.nodes:
            self.remove(name)

    def actors(self, namespace: str) -> list:
        named = {entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True)
                 if entry["namespace"] == namespace}
        rows = []
        for live_state in LIVE:
            for actor_id, record in (state.actors(actor_state_name=live_state) or {}).items():
                if record["Name"] in named:
                    rows.append({
                        "name": record["Name"], "state": record["State"], "pid": record["Pid"], "id": actor_id,
                        "node": record["Address"]["NodeID"], "restarts": record["NumRestarts"]})
        return sorted(rows, key=lambda row: row["name"])

    def classes(self, name: str, starting: bool = False) -> list:
        """Pids of a class's living actors, or of its actors that have a process but are not up yet."""
        found = state.actors(actor_state_name="PENDING_CREATION" if starting else "ALIVE") or {}
        return sorted(record["Pid"] for record in found.values() if record["ActorClassName"] == name and record["Pid"])

    def kill(self, namespace: str, name: str) -> None:
        ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)

    def hold(self, namespace: str, name: str, node: str, gpus: float, memory: int | None = None) -> None:
        actor = ray.remote(Holder).options(
            name=name, namespace=namespace, lifetime="detached", num_cpus=0, num_gpus=gpus, memory=memory,
            scheduling_strategy=self._on(node)).remote()
        ray.get(actor.ping.remote())

    def lie(self, namespace: str, name: str, node: str, says: str) -> None:
        """Create an actor on a node whose repr is `says`, with `THIS NODE` replaced by the id of its node."""
        liar = ray.remote(ModelActor).options(
            namespace=namespace, name=name, lifetime="detached", num_cpus=0, scheduling_strategy=self._on(node))
        ray.get(liar.remote(says).ping.remote(), timeout=60)

    def hold_by_task(self, node: str, gpus: float) -> None:
        """Let a plain Ray task hold cards, until `end_tasks`."""
        before = self.free(node, "GPU")
        self.tasks.append(ray.remote(sleep_long).options(
            num_cpus=0, num_gpus=gpus, scheduling_strategy=self._on(node)).remote())
        while self.free(node, "GPU") > before - gpus:
            time.sleep(0.05)

    def end_tasks(self) -> None:
        for task in self.tasks:
            ray.cancel(task, force=True)
        self.tasks.clear()

    def _on(self, node: str) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(self.nodes[node].node_id, soft=False)

    def free(self, node: str, resource: str) -> float:
        return state.available_resources_per_node().get(self.nodes[node].node_id, {}).get(resource, 0.0)

    def is_free(self, node: str) -> bool:
        """Return whether no actor holds cards or memory of a node: Ray frees them after it reports an actor dead."""
        total = state.total_resources_per_node().get(self.nodes[node].node_id, {})
        return all(self.free(node, name) == total.get(name, 0.0) for name in ("GPU", "memory"))

    def drain(self, node: str, deadline_s: float = 900) -> None:
        """Take a node out of service: its actors continue until the deadline, and it accepts nothing new.

        A node that dies in the meantime, because its raylet was frozen for too long, never drains.
        """
        gcs, node_id = ray._private.worker.global_worker.gcs_client, self.nodes[node].node_id
        accepted, why = gcs.drain_node(node_id, 2, "a test", int((time.time() + deadline_s) * 1000))
        assert accepted, why
        while node_id not in state.state.get_draining_nodes() and self.lives(node_id):
            time.sleep(0.05)

    def lives(self, node_id: str) -> bool:
        """Return whether Ray reports the node as alive."""
        return any(node["Alive"] for node in ray.nodes() if node["NodeID"] == node_id)

    def kill_node(self, name: str) -> None:
        """Kill a node's raylet; Ray notices after a while."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def process(self, node: str, kind: str) -> int:
        """The pid of a node's raylet, or of the head's gcs_server or dashboard."""
        return self.nodes[node].all_processes[kind][0].process.pid

    def restart_dashboard(self) -> None:
        """Kill the dashboard, start another at the same address, and wait until it responds."""
        head = self.nodes["head"]
        head.kill_dashboard(check_alive=False)
        head.start_api_server(include_dashboard=True, raise_on_failure=True)
        while True:
            try:
                return urllib.request.urlopen(f"{self.address()}/api/version", timeout=5).close()
            except OSError:
                time.sleep(0.1)

    def revive_dashboard(self) -> None:
        """Start the dashboard again if it has ended, as it does when the GCS is unreachable for long."""
        if self.nodes["head"].all_processes["dashboard"][0].process.poll() is not None:
            self.restart_dashboard()

    def foreign_task(self, node: str, gpus: float) -> None:
        """Request cards with a plain Ray task; Ray decides whether and when it gets them."""
        self.tasks.append(ray.remote(sleep_long).options(
            num_cpus=0, num_gpus=gpus, scheduling_strategy=self._on(node)).remote())

    def foreign_group(self, node: str, gpus: float) -> None:
        """Request cards with a foreign placement group."""
        self.foreign_groups.append(placement_group(
            [{"GPU": gpus}], bundle_label_selector=[{"ray.io/node-id": self.nodes[node].node_id}]))

    def end_foreign(self) -> str:
        """End all foreign tasks and groups; return how many there were, or an empty string."""
        gone = f"{len(self.tasks)} tasks, {len(self.foreign_groups)} groups"
        was = bool(self.tasks or self.foreign_groups)
        self.end_tasks()
        for group in self.foreign_groups:
            remove_placement_group(group)
        self.foreign_groups.clear()
        return gone if was else ""

    def free_cards(self) -> dict:
        """Free cards by node that accepts new work, once Ray's figures have been stable for some seconds."""
        previous, since = None, time.monotonic()
        while True:
            draining = state.state.get_draining_nodes()
            free = {node: found.get("GPU", 0.0) for node, found in state.available_resources_per_node().items()
                    if node not in draining}
            if free != previous:
                previous, since = free, time.monotonic()
            elif time.monotonic() - since >= 2:
                return free
            time.sleep(0.1)

    def running_jobs(self) -> list:
        """Submission ids of the running jobs."""
        from ray.job_submission import JobSubmissionClient

        return [job.submission_id for job in JobSubmissionClient(self.address()).list_jobs() if job.status == "RUNNING"]

    def node_id(self, name: str) -> str:
        return self.nodes[name].node_id

    def take_lock_over(self, fleet: str) -> None:
        """Write the fleet's next lock entry, already released, as if its job had died and another had held the lock."""
        from ray.experimental.internal_kv import _internal_kv_list, _internal_kv_put

        prefix = f"lock:{fleet}:".encode()
        number = max(int(key[len(prefix):]) for key in _internal_kv_list(prefix, namespace=b"fleetctl"))
        _internal_kv_put(prefix + str(number + 1).encode(), b'{"released": true}', namespace=b"fleetctl")

    def add_ended_runs(self, fleet: str, count: int, days: float, drivers: bool = False, log_chars: int = 0) -> None:
        """Write the rows of applies of a fleet that ended that many days ago, as Ray's dashboard writes them.

        `drivers` = also the rows of their processes, which Ray keeps elsewhere and for ever. `log_chars` = how much of
        the log is in the row of a run, as in that of a failed one.
        """
        import grpc
        from ray._private.ray_constants import KV_NAMESPACE_JOB
        from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc
        from ray.dashboard.modules.job.common import JobInfo, JobStatus
        from ray.experimental.internal_kv import _internal_kv_put

        begun = int((time.time() - days * 86_400) * 1000)
        stub = gcs_service_pb2_grpc.JobInfoGcsServiceStub(grpc.insecure_channel(self.cluster.address))
        for number in range(count):
            name = f"fleetctl-apply-{secrets.token_hex(6)}"
            metadata = {"tool": "fleetctl", "verb": "apply", "fleet": fleet, "namespace": fleet, "create": "1",
                        "planId": secrets.token_hex(32), "who": "bench@host", "toolVersion": "0.1.0"}
            message = "Job finished successfully." if not log_chars else "x" * log_chars
            info = JobInfo(
                status=JobStatus.FAILED if log_chars else JobStatus.SUCCEEDED, message=message, metadata=metadata,
                entrypoint=f"sh fleetctl_agent/start.sh apply {name}-request {fleet}",
                start_time=begun + number, end_time=begun + number + 1, driver_exit_code=3 if log_chars else 0,
                runtime_env={"working_dir": f"gcs://_ray_pkg_{secrets.token_hex(16)}.zip"},
                driver_agent_http_address="http://192.0.2.2:52365", driver_node_id="a" * 56)
            _internal_kv_put(f"_ray_internal_job_info_{name}".encode(), json.dumps(info.to_json()).encode(),
                             namespace=KV_NAMESPACE_JOB)
            if drivers:
                job_id = secrets.randbits(30) | 1 << 30
                row = gcs_pb2.JobTableData(
                    job_id=job_id.to_bytes(4, "little"), is_dead=True, start_time=begun + number, driver_pid=1,
                    end_time=begun + number + 1, entrypoint=info.entrypoint, driver_ip_address="192.0.2.2")
                row.config.metadata["job_submission_id"] = name
                row.config.ray_namespace = fleet
                stub.AddJob(gcs_service_pb2.AddJobRequest(data=row))

    def forget_ended_runs(self) -> int:
        """Delete the rows of all runs, as a DELETE for each would; the rows of their processes stay."""
        from ray._private.ray_constants import KV_NAMESPACE_JOB
        from ray.experimental.internal_kv import _internal_kv_del

        return _internal_kv_del("_ray_internal_job_info_fleetctl-", del_by_prefix=True, namespace=KV_NAMESPACE_JOB)

    def keys(self) -> dict:
        """The keys in Ray's table of what was sent to our runs, and how many of ours there are of each other kind."""
        from ray.experimental.internal_kv import _internal_kv_list

        ours = _internal_kv_list(b"", namespace=b"fleetctl")
        kinds = [key.decode(errors="replace").partition(":")[0] for key in ours]
        return {"sent": sorted(key.decode() for key in _internal_kv_list(b"gcs://fleetctl-")),
                "kinds": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}

    def session_secret(self) -> str:
        """The secret by which a replica of this cluster proves its identity to a source of weights."""
        from ray.experimental.internal_kv import _internal_kv_get

        return _internal_kv_get(b"weights-secret", namespace=b"fleetctl").decode()

    def groups(self) -> list:
        return sorted(group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED")

    def sweep(self, namespaces: list) -> None:
        """Kill all actors of the namespaces, and wait until the dashboard lists them as dead, too."""
        killed = set()
        for entry in ray.util.list_named_actors(all_namespaces=True):
            if entry["namespace"] in namespaces:
                try:
                    actor = ray.get_actor(entry["name"], namespace=entry["namespace"])
                except ValueError:
                    continue
                ray.kill(actor, no_restart=True)
                killed.add(actor._actor_id.hex())
        while any(entry["namespace"] in namespaces for entry in ray.util.list_named_actors(all_namespaces=True)):
            time.sleep(0.05)
        while killed and killed & self._listed():
            time.sleep(0.1)

    def _listed(self) -> set:
        """Ids of the actors that the dashboard does not list as dead; it learns of each change a little later."""
        with urllib.request.urlopen(f"{self.address()}/logical/actors?nocache=1", timeout=30) as answer:
            rows = json.load(answer)["data"]["actors"]
        return {actor for actor, row in rows.items() if row["state"] != "DEAD"}

    def shut_down(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


def main(kind: type[Keeper] = Keeper) -> None:
    reader, writer = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # in a user namespace (cluster.py:OWN_NAMESPACE) only this process has its rights, so that Ray runs as any user's
    ctypes.CDLL(None).prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    keeper = kind()
    print(json.dumps({"ok": keeper.address()}), file=writer, flush=True)
    for line in reader:
        verb, arguments = json.loads(line)
        try:
            answer = {"ok": getattr(keeper, verb)(**arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=writer, flush=True)
    keeper.shut_down()


if __name__ == "__main__":
    main()
