"""Every kind of hostile change once, small; `make hostile` composes them at random, in full size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.hostile.driver import ORDER, Driver, driver
from tests.hostile.judge import Limits
from tests.hostile.kinds import KINDS

pytestmark = pytest.mark.slow
JOBS = 2
STEPS = 1
"""How many commands meet each kind; `make hostile` lets all of them meet it."""
LIMITS = Limits(wall_s=100.0, kill_s=100.0)
"""A busy machine says nothing about the code: what counts is the time on a core."""
SCALE, RULES_S = 0.1, 1.0


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """As many as run at once; each begins with a process that imports all commands."""
    folder = tmp_path_factory.mktemp("hostile")
    with ExitStack() as stack:
        yield [stack.enter_context(driver(folder / str(job), 1, LIMITS, print, RULES_S, SCALE)) for job in range(JOBS)]


@pytest.mark.parametrize("slot", ORDER)
def test_no_kind_of_hostile_change_runs_anything_gets_anything_or_forges_anything(
    slot: str, drivers: list[Driver]
) -> None:
    wanted = [(number, kind.name) for number, kind in enumerate(KINDS.values()) if kind.slot == slot]
    queue = iter(wanted)  # each job takes its next one: to look first whether there is one could be too late

    def work(made: Driver) -> list[str]:
        found = []
        for number, name in queue:
            found += made.run(number, [name], STEPS)
        return found

    with ThreadPoolExecutor(JOBS) as pool:
        done = list(pool.map(work, drivers))
    assert [violation for found in done for violation in found] == []
    assert {name for made in drivers for name in made.report.kinds} >= {name for _, name in wanted} > set()
