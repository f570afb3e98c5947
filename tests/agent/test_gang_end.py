"""The coordinator of a gang, with a stand-in for Ray: what it says of a member that died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import gang
from fleetctl.agent.failure import StartFailed, about, encode_failure
from fleetctl.agent.gang import GangCoordinator

MEMBERS = [{"nodeId": "n1", "node": "a"}, {"nodeId": "n2", "node": "b"}]
REPLICA = {"specHash": "h", "fleet": "lab", "members": MEMBERS}


class DiedError(Exception):
    actor_id = "02"


def test_a_member_that_died_counts_against_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> None:
        raise DiedError(encode_failure("CARD_IN_USE", "card 0: 20480Mi by process 7"))

    errors = SimpleNamespace(RayActorError=DiedError, GetTimeoutError=TimeoutError, RayTaskError=OSError)
    monkeypatch.setattr(gang, "ray", SimpleNamespace(get=get, exceptions=errors))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica = REPLICA
    coordinator._members = [SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda at=at: at)) for at in ("01", "02")]
    with pytest.raises(StartFailed, match="card 0: 20480Mi by process 7") as caught:
        coordinator._get([])
    assert caught.value.code == "CARD_IN_USE"
    assert about(REPLICA, caught.value.place)["nodeIds"] == ["n2"]
