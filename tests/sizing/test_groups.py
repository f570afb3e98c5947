"""A model of which only the number of parameters is told: its bound holds however an engine divides the model."""

from __future__ import annotations

import pytest

from fleetctl.documents.fleet import Numbers
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import read_engine_line
from fleetctl.sizing.groups import in_short
from tests.sizing.test_public_models import FACTS, described

LINES = ("", "-tp 8", "-tp 8 -pp 2", "-pp 4", "-tp 2 -pp 3", "-tp 2 -pp 8", "-dp 8 --enable-expert-parallel", "-dp 8",
         "-tp 4 -dp 4 --enable-expert-parallel")


@pytest.mark.parametrize("words", LINES)
def test_the_bound_of_a_size_in_short_is_never_above_what_the_described_model_takes(words: str) -> None:
    line = read_engine_line(["vllm", "serve", "m", *words.split()], {})
    for name in FACTS:
        model = described(name)
        as_bf16 = model.loaded - min(model.types.get("F32", 0), model.loaded) // 2  # engines load it as 16 bits
        short = in_short(Numbers.model_construct(parameters=as_bf16 // 2, weights="bf16"))
        cards = line.ranks
        assert card_need(short, line, cards=cards, memory=None).bound <= card_need(
            model, line, cards=cards, memory=None).weights, name


def test_the_stages_of_a_pipeline_each_get_their_part() -> None:
    short = in_short(Numbers.model_validate({"parameters": "405B"}))
    assert (short.parameters, short.bytes) == (405 * 10 ** 9, 810 * 10 ** 9)
    for words, parts in (("-tp 8", 8), ("-tp 8 -pp 2", 16), ("-pp 7", 7)):
        line = read_engine_line(["vllm", "serve", "m", *words.split()], {})
        assert card_need(short, line, cards=parts, memory=None).bound == pytest.approx(short.bytes / parts, rel=1e-6)
