"""A claim in Ray's terms is equal to the plan's, to the last 1/10000."""

from __future__ import annotations

from fleetctl.agent.cluster import claim_of, format_claim, member_options
from fleetctl.agent.messages import Member

RAYS_UNIT = 10_000
MEMBER = Member("main", 0, "Standalone", 0, "id-a", "node-a")


def test_ray_truncates_to_four_decimals_and_still_grants_the_planned_amount() -> None:
    for amount in range(1, 20_000):
        claim = claim_of(MEMBER._replace(gpus=amount, cpus=amount))
        assert int(claim["GPU"] * RAYS_UNIT) == int(claim["CPU"] * RAYS_UNIT) == amount
    assert format_claim(MEMBER._replace(gpus=3112, cpus=20_000)) == "0.3112 GPU, 2 CPU"


def test_an_actor_claims_exactly_what_its_member_does_and_nothing_by_default() -> None:
    assert member_options(MEMBER) == {"num_cpus": 0, "num_gpus": 0}
    assert member_options(MEMBER._replace(gpus=5_000, memory=1 << 30)) == {
        "num_cpus": 0, "num_gpus": 0.5, "memory": 1 << 30}
