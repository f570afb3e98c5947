"""Every finding code has a text, and its documentation page exists and explains it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from fleetctl.doctor.fleet import OTHER_STORE
from fleetctl.documents.difference import Effect
from fleetctl.documents.plan import Drift, PolicyFinding
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.render.report.code_texts import PAGES, TEXTS, code_text, help_page

ROOT = Path(__file__).parents[3]
USED = {
    *(code.name for code in Code if code != Code.FITS), *get_args(PolicyFinding.model_fields["code"].annotation),
    *get_args(Drift.model_fields["code"].annotation), *(effect.upper() for effect in get_args(Effect)),
    *(code for page in ("placement", "apply", "verbs", "weights", "doctor")
      for cell in re.findall(r"^\| (`[A-Z][A-Z_`, ]+`) \|", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"),
                             re.MULTILINE)
      for code in re.findall(r"[A-Z_]+", cell)),
}


def test_every_code_has_a_text_and_a_page() -> None:
    assert [code for code in sorted(USED) if code_text(code) == code or help_page(code) == "docs/index.md"] == []
    assert [page for page in set(PAGES.values()) if not (ROOT / page).is_file()] == []


def test_every_code_of_the_doctor_is_in_its_page_and_explained() -> None:
    in_code = {code for path in (ROOT / "fleetctl" / "doctor").glob("*.py")
               for code in re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', path.read_text(encoding="utf-8"))}
    assert len(in_code) > 25
    assert in_code - USED - OTHER_STORE == set()
    table = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert [code for code, page in PAGES.items() if page == "docs/doctor.md" and f"`{code}`" not in table] == []


def test_an_unknown_code_is_its_own_text() -> None:
    assert (code_text("NEW_CODE"), help_page("NEW_CODE")) == ("NEW_CODE", "docs/index.md")
    assert set(TEXTS) == set(PAGES)
