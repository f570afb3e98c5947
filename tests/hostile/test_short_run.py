"""Every kind of hostile change once, small; `make hostile` composes them at random, in full size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hostile.driver import ORDER, driver
from tests.hostile.judge import Limits
from tests.hostile.kinds import KINDS

pytestmark = pytest.mark.slow
JOBS = 2
STEPS = 1
"""How many commands meet each kind; `make hostile` lets all of them meet it."""
LIMITS = Limits(wall_s=100.0, kill_s=100.0)
"""A busy machine says nothing about the code: what counts is the time on a core."""
SCALE, RULES_S = 0.1, 1.0


@pytest.mark.parametrize("slot", ORDER)
def test_no_kind_of_hostile_change_runs_anything_gets_anything_or_forges_anything(slot: str, tmp_path: Path) -> None:
    wanted = [(number, kind.name) for number, kind in enumerate(KINDS.values()) if kind.slot == slot]
    queue = iter(wanted)  # each job takes its next one: to look first whether there is one could be too late

    def work(job: int) -> tuple[set[str], list[str]]:
        with driver(tmp_path / str(job), 1, LIMITS, print, RULES_S, SCALE) as made:
            for number, name in queue:
                made.run(number, [name], STEPS)
            return set(made.report.kinds), made.report.violations

    with ThreadPoolExecutor(JOBS) as pool:
        done = list(pool.map(work, range(JOBS)))
    assert [violation for _, violations in done for violation in violations] == []
    assert set().union(*(kinds for kinds, _ in done)) == {name for _, name in wanted}
