"""What is computed of public models against what was published of them, and what engines logged."""

from __future__ import annotations

import json
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli.model import text_of
from fleetctl.documents.model import Description
from fleetctl.sizing.architecture import from_config, from_gguf
from fleetctl.sizing.card_bytes import card_need
from fleetctl.sizing.engine_line import EngineLine
from fleetctl.sizing.kv_cache import kinds, state_bytes, token_bytes
from fleetctl.sizing.parts import model_of
from tests.sizing.checkpoints import tensors_of

FACTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())
GIB = 1 << 30


@cache
def described(name: str) -> Description:
    """Return the description of a public model."""
    fact = FACTS[name]
    found = from_gguf(fact["gguf"], tied=False) if "gguf" in fact else from_config(fact["config"])
    return model_of(name, tensors_of(fact), found)


@pytest.mark.parametrize("name", FACTS)
def test_parameters_and_bytes_are_those_published(name: str) -> None:
    fact, model = FACTS[name], described(name)
    stored = model.parameters
    if fact.get("scales"):
        stored = sum(prod(tensor.shape) for tensor in tensors_of(fact))
    assert stored == pytest.approx(fact.get("parameters", stored), rel=1e-6)
    assert model.bytes == fact.get("bytes", model.bytes)
    assert model.bytes == pytest.approx(fact.get("file", model.bytes), rel=0.01)


def test_twenty_and_more_models_of_all_kinds_are_there_with_where_their_figures_are_from() -> None:
    models = [described(name) for name in FACTS]
    kinds_of = {kind for model in models for kind in kinds(model.layers)}
    assert all(fact["from"] for fact in FACTS.values())
    assert len(models) >= 20
    assert kinds_of == {"full", "sliding", "chunked", "state"}
    assert {model.quantization for model in models} == {None, "fp8", "awq", "mxfp4", "gguf"}
    assert {bool(model.latent) for model in models} == {bool(model.experts) for model in models} == {True, False}


@pytest.mark.parametrize("name", FACTS)
def test_a_token_and_a_state_take_what_the_engine_says(name: str) -> None:
    fact, model, line = FACTS[name], described(name), EngineLine("vllm")
    counts = kinds(model.layers)
    assert token_bytes(model, line) * (counts["full"] + counts["sliding"] + counts["chunked"]) == fact["kv"]
    assert state_bytes(model, line) * counts["state"] == fact.get("state", 0)
    assert model.attention_known


@pytest.mark.parametrize(("name", "log"), [
    (name, log) for name, fact in FACTS.items() for log in fact.get("loaded", [])])
def test_weights_of_a_rank_are_within_a_hundredth_of_what_was_logged(name: str, log: dict[str, float]) -> None:
    ranks = int(log["ranks"])
    need = card_need(described(name), EngineLine("vllm", tensor=ranks), cards=ranks, memory=80 * GIB)
    assert need.weights / GIB == pytest.approx(log["gib"], rel=0.01)
    assert need.bound_weights <= need.weights


@pytest.mark.parametrize("name", FACTS)
def test_a_description_without_its_defaults_is_read_back_equal(name: str) -> None:
    model = described(name)
    written = model.as_json()
    assert Description.model_validate(written) == model
    assert 0 not in written.values()
    assert len(json.dumps(written)) < 12_000


def test_what_no_engine_loads_is_not_in_the_bound() -> None:
    stored_head, masks, draft = described("qwen3-0.6b"), described("gpt2"), described("glm-4.5-air")
    assert stored_head.loaded == 2 * 596_049_920
    assert masks.unused == 50_331_648
    assert draft.draft > 7 * 10 ** 9
    for model in (stored_head, masks, draft):
        assert card_need(model, EngineLine("vllm"), cards=1, memory=None).bound <= model.loaded


@pytest.mark.parametrize("name", ["llama-3.1-405b", "qwen3-8b"])
def test_a_description_in_the_examples_is_what_describe_writes(name: str) -> None:
    path = Path(__file__).parents[2] / "fleets" / "described-models" / "models" / f"{name}.json"
    written = json.loads(path.read_text())
    assert text_of(described(name).model_copy(update={"source": written["source"]})) == path.read_text()
