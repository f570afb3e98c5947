"""The docs explain exactly the codes that a plan can have."""

from __future__ import annotations

import re
from pathlib import Path

from checker import CODES

from fleetctl.planner.placement.reasons.check import Code

DOCS = (Path(__file__).parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")


def test_the_docs_explain_exactly_the_codes_there_are() -> None:
    section = DOCS.split("## Why something is blocked")[1].split("## ")[0]
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", section, flags=re.MULTILINE)) == CODES


def test_the_order_of_checks_covers_every_code_of_a_node() -> None:
    assert {code.name for code in Code} - {"FITS"} == CODES - {
        "GANG_NEEDS_NODES", "RANKS_SHARE_A_CARD", "SAME_LABEL_DOMAIN", "CLAIMED_BY_FLEET", "PAUSED", "QUOTA",
        "UPDATE_NEEDS_ROOM", "COOLING_DOWN", "IMAGE_MISSING", "WAITS_FOR_NODES", "MAX_NODES",
        "VARIANT_FULL"}
