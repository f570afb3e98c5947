"""Actors receive fleetctl's code by value: it unpickles without any of its files."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SEND = """\
import sys

import pytest
from ray import cloudpickle
import fleetctl.agent
from fleetctl.agent.demote import incomplete_here
from fleetctl.agent.examine import examine_node
from fleetctl.agent.gang import GangCoordinator, GangMember
from fleetctl.agent.orphans import end_orphans
from fleetctl.agent.prefetch import fetch_here
from fleetctl.agent.prune import list_here, remove_here
from fleetctl.agent.replica import ModelActor
from fleetctl.agent.warm import WarmHolder, WarmReplica
fleetctl.agent.cluster._accessor.append((one for one in ()))  # as little to be sent as a connection
cloudpickle.register_pickle_by_value(sys.modules["fleetctl.agent"])
sys.stdout.buffer.write(cloudpickle.dumps((
    ModelActor, GangCoordinator, GangMember, examine_node, end_orphans, fetch_here, list_here, remove_here,
    WarmReplica, WarmHolder, incomplete_here)))
"""
RECEIVE = """\
import sys

import pytest
from ray import cloudpickle

class Nothing:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "fleetctl":
            raise ImportError(f"{name} is not on this node")

sys.meta_path.insert(0, Nothing())
classes = cloudpickle.loads(sys.stdin.buffer.read())
print(*(one.__name__ for one in classes))
"""


def test_code_in_an_actor_needs_no_file_of_ours_on_its_node() -> None:
    sent = subprocess.run([sys.executable, "-c", SEND], capture_output=True, check=True, timeout=120).stdout
    there = subprocess.run([sys.executable, "-c", RECEIVE], input=sent, capture_output=True, timeout=120, check=False)
    assert there.stderr.decode() == ""
    assert there.stdout.decode().split() == [
        "ModelActor", "GangCoordinator", "GangMember", "examine_node", "end_orphans", "fetch_here", "list_here",
        "remove_here", "WarmReplica", "WarmHolder", "incomplete_here"]
