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
from fleetctl.agent.examine import examine_node
from fleetctl.agent.gang import GangCoordinator, GangMember
from fleetctl.agent.leftovers import end_orphans
from fleetctl.agent.prefetch import fetch_here
from fleetctl.agent.leftovers import list_here, remove_here
from fleetctl.agent.replica import ModelActor
from fleetctl.agent.warm import incomplete_here
from fleetctl.agent.report import describe, place_of
from fleetctl.agent.messages import Engine, FromNode, Lifecycle, Member, PortProbe, Probe, Replica
from fleetctl.agent.warm import WarmHolder, WarmReplica
from fleetctl.agent.wire import from_parts, in_parts
fleetctl.agent.cluster._accessor.append((one for one in ()))  # as little to be sent as a connection
cloudpickle.register_pickle_by_value(sys.modules["fleetctl.agent"])
engine = Engine(("serve",), env={"A": "a", "B": FromNode("HOME")}, readiness=Probe(http=PortProbe("/health")))
member = Member("main", 0, "Leader", 0, "id-a", "a", engine=engine)
replica = Replica("m/0", "m", 0, Lifecycle(60.0), members=(member, member._replace(rank=1)))
sys.stdout.buffer.write(cloudpickle.dumps((
    (ModelActor, GangCoordinator, GangMember, examine_node, end_orphans, fetch_here, list_here, remove_here,
     WarmReplica, WarmHolder, incomplete_here), from_parts, Replica, in_parts(replica), describe, place_of, replica)))
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
classes, from_parts, kind, parts, describe, place_of, sent = cloudpickle.loads(sys.stdin.buffer.read())
print(*(one.__name__ for one in classes))
replica = from_parts(kind, parts)
assert replica == sent and type(replica) is kind, replica
there = cloudpickle.loads(cloudpickle.dumps(replica.members[1]))  # as to an actor of a member
print(there.rank, there.engine.env["B"].from_node, describe(replica, [place_of(there)], "now"))
"""


def test_code_in_an_actor_needs_no_file_of_ours_on_its_node() -> None:
    sent = subprocess.run([sys.executable, "-c", SEND], capture_output=True, check=True, timeout=300).stdout
    there = subprocess.run([sys.executable, "-c", RECEIVE], input=sent, capture_output=True, timeout=300, check=False)
    assert there.stderr.decode() == ""
    names, values = there.stdout.decode().splitlines()
    assert names.split() == [
        "ModelActor", "GangCoordinator", "GangMember", "examine_node", "end_orphans", "fetch_here", "list_here",
        "remove_here", "WarmReplica", "WarmHolder", "incomplete_here"]
    assert values.startswith('1 HOME {"v":1,')
