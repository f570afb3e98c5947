"""Each recipe of docs/engines.md is a valid part of a fleet file, without a warning."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from fleetctl.fleetfile.load import inspect_fleet

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n"


@pytest.mark.parametrize("recipe", RECIPES, ids=[str(number) for number in range(len(RECIPES))])
def test_a_recipe_is_valid_below_the_models_of_a_fleet(recipe: str, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(HEAD + textwrap.indent(recipe, "  "))
    assert [str(problem) for problem in inspect_fleet([str(fleet)]).problems] == []
