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
def _freeze(): os.kill(os.getpid(), signal.SIGSTOP)
def _before(owner, name, act, nth=1):
    original, calls = getattr(owner, name), []
    def replaced(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            act()
        return original(*args, **kwargs)
    setattr(owner, name, replaced)
def _steal(replica, not_counted, sound=attempt.check):
    attempt.check = sound
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    class Thief:
        def ping(self): return 1
    node = replica.members[0].node_id
    thief = ray.remote(Thief).options(name="thief", lifetime="detached", num_cpus=0, num_gpus=1,
                                      scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    ray.get(thief.ping.remote())
def _after(owner, name, act):
    original = getattr(owner, name)
    def replaced(*args, **kwargs):
        result = original(*args, **kwargs)
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
