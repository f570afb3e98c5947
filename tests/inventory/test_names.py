"""Names of replicas: fleetctl's, split at the last colon, and both schemes of NDIF."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.inventory.marks import ReplicaName, parse_actor_name

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
keys = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(":/#{}"), min_size=1)


@given(keys, st.integers(min_value=0, max_value=10**17))
def test_any_model_key_is_restored_from_its_actor_name(key: str, replica_id: int):
    assert parse_actor_name(f"ModelActor:{key}:{replica_id}") == ReplicaName(key, replica_id)


@given(keys.filter(lambda key: ":" not in key), st.sampled_from(["0a1b2", UUID, UUID.replace("-", "")]))
def test_a_name_with_the_id_in_front_is_ndifs(key: str, foreign: str):
    assert parse_actor_name(f"{foreign}:ModelActor:{key}") == ReplicaName(key, None)


@pytest.mark.parametrize(("name", "expected"), [
    ("ModelActor:a:b:3", ReplicaName("a:b", 3)),
    ("ModelActor:a:1:2", ReplicaName("a:1", 2)),
    ('ModelActor:lm:{"repo_id": "gpt2"}:0', ReplicaName('lm:{"repo_id": "gpt2"}', 0)),
    (f"ModelActor:org/a:{UUID}", ReplicaName("org/a", None)),
    (f"ModelActor:org/a:{UUID.replace('-', '')}", ReplicaName("org/a", None)),
    ('0a1b2:ModelActor:lm:{"repo_id": "gpt2"}', ReplicaName('lm:{"repo_id": "gpt2"}', None)),
    ("ModelActor:org/a", ReplicaName("org/a", None)),
    ("ModelActor:org/a:007", ReplicaName("org/a:007", None)),
    ("ModelActor:org/a:-1", ReplicaName("org/a:-1", None)),
    ("ModelActor:org/a:\u0663", ReplicaName("org/a:\u0663", None)),
    ("ModelActor:org/a:\u00b2", ReplicaName("org/a:\u00b2", None)),
    ("ModelActor:org/a:" + 18 * "9", ReplicaName("org/a", 10**18 - 1)),
    ("ModelActor:org/a:1" + 18 * "0", ReplicaName("org/a:1" + 18 * "0", None)),
    ("ModelActor:", None),
    ("ModelActor", None),
    ("modelactor:a:0", None),
    ("xyz12:ModelActor:a", None),
    ("FleetLock:lab", None),
    ("", None),
])
def test_names_are_parsed_into_scheme_key_and_id(name: str, expected: ReplicaName | None):
    assert parse_actor_name(name) == expected


@given(keys, st.integers(min_value=0, max_value=10**17))
def test_a_warm_replica_has_the_same_id_under_another_name(key: str, replica_id: int):
    assert parse_actor_name(f"WarmReplica:{key}:{replica_id}") == ReplicaName(key, replica_id, "WARM")
    assert parse_actor_name(f"WarmReplica:{key}:0{replica_id}") is None
