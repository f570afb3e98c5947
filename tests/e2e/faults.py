"""Faults in the shipped agent: the real agent, killed or frozen at one exact point of an apply."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from typing import Any

from fleetctl.apply.jobs import AGENT_PACKAGE, Package, agent_package

PRELUDE = """
import os, signal
from . import apply, attempt

def _die(): os.kill(os.getpid(), signal.SIGKILL)
def _orphan():
    pid = os.getppid()
    while pid > 1 and b"JobSupervisor" not in open(f"/proc/{pid}/cmdline", "rb").read():
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
def _orphan_until_ended(job, seconds=0.9):
    import time
    from . import records
    _orphan()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and records._job(job).status not in records.ENDED:
        time.sleep(0.02)
def _offered(act):
    from . import run_messages, standby
    original, done = standby.take_document, []
    def replaced(name):
        there = name.endswith("-plan") and run_messages._internal_kv_get(f"gcs://{name}".encode()) is not None
        if there and not done:
            done.append(1)
            act(name.rpartition("-")[0])
        return original(name)
    standby.take_document = replaced
def _freeze(): os.kill(os.getpid(), signal.SIGSTOP)
def _before(owner, name, act, nth=1):
    original, calls = getattr(owner, name), []
    def replaced(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            act()
        return original(*args, **kwargs)
    setattr(owner, name, replaced)
def _steal(replica, not_counted, view, sound=attempt.check):
    attempt.check = sound
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    class Thief:
        def ping(self): return 1
    node = replica.members[0].node_id
    thief = ray.remote(Thief).options(name="thief", lifetime="detached", num_cpus=0, num_gpus=1,
                                      scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    ray.get(thief.ping.remote())
def _after(owner, name, act, nth=0):
    original, calls = getattr(owner, name), []
    def replaced(*args, **kwargs):
        result = original(*args, **kwargs)
        calls.append(1)
        if nth in (0, len(calls)):
            act()
        return result
    setattr(owner, name, replaced)
"""

FAULTS = {
    "after the lock": "_before(apply.ApplyRun, 'work', _die)",
    "between two creates": "_before(attempt, 'create', _die, nth=2)",
    "right after a create": "_after(attempt, 'create', _die)",
    "while a constructor waits": "_before(attempt.Attempt, '_await_ready', _die)",
    "before the result": "_before(apply.ApplyRun, 'end', _die)",
    "right after a reload has begun": "from . import reload; _after(reload.ReloadTask, '_ask', _die)",
    "before a reload is noted": "from . import reload; _before(reload.ReloadTask, '_note', _die, nth=2)",
    "frozen between two creates": "_before(attempt, 'create', _freeze, nth=2)",
    "another release": "",
    "no wait for dirty cards": "from . import cards; cards.CLEAN_S = 0.0",
    "WARM is up, HOT not ended": "from . import evict; _before(evict, 'Leaving', _die)",
    "while a replica is leaving": "from . import evict; _before(evict.Leaving, 'is_over', _die, nth=20)",
    "a second of readiness ends a row of restarts": "from . import budget; budget.HEALTHY_S = 1.0",
    "the node is taken at the last moment": "attempt.check = _steal",
    "before a plan that was taken is announced": "from . import standby; _before(standby, 'become_run', _die)",
    "right after a plan was announced": "from . import standby; _after(standby, 'become_run', _die)",
    "a watch is gone after two seconds": "from . import standby; standby.WATCH_GONE_S = 2.0",
    "ready engines are probed often": "from . import readiness; readiness.PERIOD_S, readiness.RECORD_S = 0.3, 1.0",
}

STAGES = {
    "it waits": "from . import standby; _before(standby, 'wait_for_plan', KILL)",
    "a plan is offered": "_offered(lambda _: KILL())",
    "a plan is taken": "from . import standby; _before(standby, 'become_run', KILL)",
    "a plan is announced": "from . import standby; _after(standby, 'become_run', KILL)",
    "it has the lock": "_before(apply.ApplyRun, 'work', KILL)",
    "the pilot starts": "_after(attempt, 'create', KILL)",
    "it asks for a plan": "_after(apply.ApplyRun, '_ask_for_plan', KILL)",
    "it creates side by side": "_before(attempt, 'create', KILL, nth=3)",
    "all are created": "_after(attempt, 'create', KILL, nth=7)",
    "it has ended": "_before(apply.ApplyRun, 'end', KILL)",
}
"""Where an agent that waits for a plan can be killed, in order; the plan has seven replicas, the first is a pilot."""
FAULTS |= {f"agent killed: {stage}": code.replace("KILL", "_die") for stage, code in STAGES.items()}
FAULTS |= {f"supervisor killed: {stage}": code.replace("KILL", "_orphan") for stage, code in STAGES.items()}
FAULTS["supervisor killed: a plan is offered"] = "_offered(_orphan_until_ended)"


def faulty_package(fault: str) -> Any:
    """Return a stand-in for `agent_package` that ships an agent with this fault."""

    @cache
    def build() -> Package:
        sound = agent_package()
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(sound.data)) as source, zipfile.ZipFile(buffer, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                if name == f"{AGENT_PACKAGE}/__main__.py":
                    head, mark, tail = data.decode().partition('if __name__ == "__main__":')
                    data = f"{head}{PRELUDE}{FAULTS[fault]}\n\n{mark}{tail}".encode()
                target.writestr(name, data)
        digest = hashlib.sha256(fault.encode() + sound.data).hexdigest()[:31]
        return Package(f"_ray_pkg_f{digest}.zip", buffer.getvalue())

    return build
