"""--selector: the syntax and meaning of kubectl; anything else is refused with the allowed forms."""

from __future__ import annotations

import pytest

from fleetctl.documents.selector import LABELS_ALLOWED, parse_label_selector

MODELS: dict[str, dict[str, str]] = {
    "n": {"team": "nlp"}, "v": {"team": "vision", "tier": "core"}, "t": {"tier": "trial"}}


@pytest.mark.parametrize(("text", "chosen"), [
    ("team=nlp", "n"), ("team==nlp", "n"), (" team = nlp ", "n"), ("team!=nlp", "vt"), ("team", "nv"), ("!team", "t"),
    ("team in (nlp, vision)", "nv"), ("team in (nlp),tier", ""), ("team notin (nlp,x)", "vt"),
    ("team,tier!=trial", "nv"), ("team=in(nlp, vision),tier=core", "v"), ("team=!nlp", "vt"), ("team!=!nlp", "n"),
    ("tier in (core, trial), team notin (nlp)", "vt"),
])
def test_a_selector_chooses_like_kubectl(text: str, chosen: str) -> None:
    selector = parse_label_selector(text)
    assert "".join(key for key, labels in MODELS.items() if selector.matches(labels)) == chosen


@pytest.mark.parametrize("text", [
    "", ",", "team=", "=nlp", "team=a b", "team in nlp", "team in ()", "a=b,", "!", "team<3", "team in (a", "te am",
    "team=a=b"])
def test_other_syntax_is_refused_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector") as refused:
        parse_label_selector(text)
    assert LABELS_ALLOWED in str(refused.value)
