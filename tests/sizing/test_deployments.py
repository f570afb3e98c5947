"""Nothing that was published as running is blocked, and of none the estimate says that it cannot start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.sizing.engine_line import read_engine_line
from fleetctl.sizing.fit import CardKind, judge
from tests.sizing.test_public_models import GIB, described

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("deployments.yaml").read_text())


@pytest.mark.parametrize("known", DEPLOYMENTS, ids=lambda known: f"{known['model']} on {known['cards']}")
def test_what_runs_somewhere_is_not_refused(known: dict[str, Any]) -> None:
    line = read_engine_line(shlex.split(known["line"]), {})
    card = CardKind("card", int(known["card"] * GIB), 8, 16)
    fit = judge(described(known["model"]), line, cards=known["cards"], card=card)
    assert line.uncertain == ()
    assert line.engine == "llama.cpp" or line.ranks == known["cards"]
    assert fit.kind != "certain", fit.text
    assert "it would not start" not in fit.text
    assert fit.need.length is None or fit.need.length >= (line.context or 1) or line.engine == "llama.cpp", fit.text
