"""Packings of 1,000 random fleets with up to four variants a model (in `make test-placement`) against the optimum.

Another 1,000 have nodes with prices. The optimum of CP-SAT goes down to the lowest price, then the preferred variants.
A packing equals it wherever CP-SAT proved it, all rules hold, and no claim is false; so does the plan of one fleet in
four. Where Ray ignores memory (`BLIND`) the optimum is only a bound. `make test` tries two of each family.
"""

from __future__ import annotations

import pytest
from oracle.families import BLIND, FAMILIES
from oracle.with_variants import complaints_about_plan, judge_variants
from random_cases import cases

pytestmark = pytest.mark.usefixtures("few_trials")
COUNT = min(cases(10), 67)
"""Fleets of a family: 1,005 of all families in `make test-placement`."""


@pytest.mark.parametrize("priced", [False, True], ids=["without prices", "with prices"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_packing_equals_the_optimum_down_to_the_preferred_variants(family: str, priced: bool) -> None:
    packed = [judge_variants(family, seed, priced=priced) for seed in range(COUNT)]
    assert [f"{one.name}: {wrong}" for one in packed for wrong in one.wrong] == []
    proven = [one for one in packed if one.best.proven]
    assert len(proven) >= 0.9 * COUNT, "the oracle must prove most optima"
    if family not in BLIND:
        assert [f"{one.name}: {one.reached} of {one.best.vector}" for one in proven if not one.equal] == []
    planned = range(0, COUNT, 4)  # a plan takes longer than its packing, because of the reasons
    assert [wrong for seed in planned
            for wrong in complaints_about_plan(family, seed, packed[seed].best, priced=priced)] == []
