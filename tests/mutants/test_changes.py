"""The mutants of a file are small changes inside its functions, and a trial tells which of them a test sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.changes import mutants_of

SOURCE = '''\
"""A module."""
LIMIT = 5

class Box:
    """A box."""

    size: int = 3

    def fits(self, amounts: list[int], spare: int = 1) -> bool:
        """Return whether it fits."""
        free = self.size - spare
        for amount in sorted(amounts, key=lambda one: (one < 0, one)):
            if amount > free:
                return False
            free -= amount
        return free >= 0 and not self.broken

def rest(amounts: dict[str, int], size: int) -> str:
    left = max(0, size - amounts.get("a", 0))
    if left:
        print(f"{left + 1} left")
    return "x" if left is not None else "y"
'''


def test_mutants_are_distinct_changes_of_behavior_inside_functions() -> None:
    mutants = mutants_of(SOURCE.encode())
    names = [one.name for one in mutants]
    assert len(set(names)) == len(names)
    changed = [one.applied(SOURCE.encode()).decode() for one in mutants]
    assert len(set(changed)) == len(changed)
    for text in changed:
        compile(text, "changed", "exec")
        for kept in ('"""A module."""', "LIMIT = 5", "size: int = 3", "spare: int = 1", "list[int]"):
            assert kept in text
    assert not [name for name in names if "left - 1" in name or "left + 2" in name], "texts stay"
    assert {name.partition(": ")[2] for name in names} >= {
        "amount > free -> True", "amount > free -> amount >= free", "free -= amount -> pass", "False -> True",
        "self.size - spare -> self.size + spare", "not self.broken -> self.broken",
        "free >= 0 and (not self.broken) -> free >= 0", "lambda one: (one < 0, one) -> lambda one: (one,)",
        "max(0, size - amounts.get('a', 0)) -> min(0, size - amounts.get('a', 0))", "0 -> 1",
        "amounts.get('a', 0) -> amounts.get('a')", "print(f'{left + 1} left') -> pass"}


@pytest.mark.slow
def test_a_trial_tells_which_mutants_a_test_kills_and_writes_no_file(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    source = "def price(count):\n    return count * 2 if count > 0 else 0\n"
    (tmp_path / "shop" / "till.py").write_text(source)
    (tmp_path / "test_till.py").write_text(
        "from shop.till import price\n\ndef test_price():\n    assert (price(3), price(0)) == (6, 0)\n")
    mutants = mutants_of(source.encode())
    asked = {"file": "shop/till.py", "tests": ["test_till.py"],
             "mutants": [(one.function, one.applied(source.encode()).decode()) for one in mutants]}
    done = subprocess.run([sys.executable, "-m", "tests.mutants.trial"], input=json.dumps(asked), capture_output=True,
                          text=True, check=True, cwd=tmp_path, timeout=300,
                          env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"})
    ends = dict(zip((one.name for one in mutants), done.stdout.split(), strict=True))
    assert (ends["price: count * 2 -> count + 2"], ends["price: 2 -> 3"]) == ("killed", "killed")
    assert {name for name, end in ends.items() if end == "survived"} == {
        "price: count > 0 -> True", "price: count > 0 -> count >= 0", "price: 0 -> 1"}
    assert (tmp_path / "shop" / "till.py").read_text() == source
