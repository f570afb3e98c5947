"""A claim in Ray's terms is equal to the plan's, to the last 1/10000."""

from __future__ import annotations

from fleetctl.agent.claims import claim_of, format_claim

RAYS_UNIT = 10_000


def test_ray_truncates_to_four_decimals_and_still_grants_the_planned_amount() -> None:
    for amount in range(1, 20_000):
        claim = claim_of({"gpus": amount, "cpus": amount, "memory": 0})
        assert int(claim["GPU"] * RAYS_UNIT) == int(claim["CPU"] * RAYS_UNIT) == amount
    assert format_claim({"gpus": 3112, "cpus": 20_000, "memory": 0}) == "0.3112 GPU, 2 CPU"
