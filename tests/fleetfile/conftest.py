"""House rules are evaluated in this process: hundreds of tests have rules, and each would start another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.fleetfile import rule_schema
from fleetctl.fleetfile.rule_process import evaluate_here


@pytest.fixture(scope="module", autouse=True)
def rules_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the process only to its own tests."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] != "test_rule_process":
            patch.setattr(rule_schema, "evaluate", evaluate_here)
        yield
