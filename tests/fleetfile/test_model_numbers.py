"""`model` of a model: a description beside the fleet file, or its size in short, and what validate says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.fleetfile.resolved import ResolvedModel
from tests.sizing.test_public_models import described

from .memory_tree import inspect, messages

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/large
    replicas: 1
    model: <model>
    workers:
    - name: main
      members:
      - resources: <claim>
        engine: {command: [vllm, serve, $(FLEETCTL_MODEL)], args: <args>}
"""
LLAMA = described("llama-3.1-405b").as_json()
SAYS = "allowed: a file that `fleetctl model describe` wrote"


def fleet(model: str, claim: str = "{gpus: 1}", args: str = "[]") -> str:
    """Return a fleet file with one model."""
    return FLEET.replace("<model>", model).replace("<claim>", claim).replace("<args>", args)


def found(text: str, description: Any = LLAMA) -> list[str]:
    """Return the problems of a fleet beside a description."""
    body = description if isinstance(description, str) else json.dumps(description)
    return messages({"fleet.yaml": text, "models/large.json": body})


def loaded(text: str) -> ResolvedModel:
    """Return the only model of a fleet."""
    fleet = inspect({"fleet.yaml": text, "models/large.json": json.dumps(LLAMA)}).sound()
    return fleet.models[0]


def test_a_description_is_read_beside_the_file_and_changes_no_spec() -> None:
    with_it = loaded(fleet("{description: models/large.json}", "{gpus: 8}", "[-tp, '8']"))
    without = loaded(fleet("null", "{gpus: 8}", "[-tp, '8']"))
    assert with_it.description is not None
    assert with_it.description.parameters == 405_853_388_800
    assert without.description is None
    assert with_it.spec_hash == without.spec_hash


def test_a_size_in_short_is_a_description_without_a_context() -> None:
    model = loaded(fleet("{parameters: 8B, weights: fp8}")).description
    assert model is not None
    assert (model.parameters, model.bytes, model.attention_known) == (8 * 10 ** 9, 8 * 10 ** 9, False)


def test_validate_warns_of_what_no_card_holds_and_of_a_claim_that_is_too_small() -> None:
    more = "allowed: more cards in resources.gpus and in the engine's flags"
    assert found(fleet("{description: models/large.json}")) == [
        "fleet.yaml:8:5: warning FL063: main: 755.96Gi of weights on its card, and the largest card there is has "
        "432Gi; " + more]
    assert found(fleet("{parameters: 70B}", "{gpus: 1, vram: 40Gi}")) == [
        ("fleet.yaml:8:5: warning FL063: main: 130.39Gi of weights on its card, and the claim has 40Gi; "
        "allowed: a larger resources.vram, or more cards in resources.gpus and in the engine's flags")]
    assert found(fleet("{description: models/large.json}", "{gpus: 8, vram: 90Gi}", "[-tp, '8', --max-model-len, '9k']")
                 )[0].endswith("allowed: a larger resources.vram, or a smaller --max-model-len, or "
                               + more.removeprefix("allowed: "))
    assert found(fleet("{parameters: 70B}", "{gpus: 2, vram: 70Gi}", "[-tp, '2']")) == []


@pytest.mark.parametrize("args", ["[--cpu-offload-gb, '600']", "[--quantization, fp8]", "[--no-such-flag]"])
def test_nothing_is_said_of_an_engine_whose_memory_is_not_certain(args: str) -> None:
    assert found(fleet("{description: models/large.json}", args=args)) == []


@pytest.mark.parametrize(("model", "message"), [
    ("{description: models/none.json}", "26: error FL091: no such file: models/none.json"),
    ("{description: ../large.json}", '"../large.json" leads outside the checkout'),
    ("{description: https://host/large.json}", "is not a path relative to this file"),
    ("{description: models/large.json, parameters: 8B}", "error FL091: model has description and parameters"),
    ("{weights: bf16}", "error FL091: model has none of description and parameters"),
    ("{parameters: 8 billion}", "did you mean 8B?"), ("{parameters: 8}", "did you mean 8B?"),
    ("{parameters: 8030261248}", 'did you mean "8030261248"?'), ("{parameters: ''}", "error FL025: parameters is"),
    ("{parameters: 9999999T}", "out of range"), ("{parameters: 8B, weights: q4}", "error FL024")])
def test_a_model_that_is_not_told_right_is_a_problem_at_its_place(model: str, message: str) -> None:
    problems = found(fleet(model))
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(("description", "message"), [
    ("{", "models/large.json is not JSON"), ("[" * 100_000, "is not JSON"),
    ("7", "large.json is not the description of a model"),
    ({**LLAMA, "kind": "Fleet"}, "large.json is not the description of a model"),
    ({**LLAMA, "bytes": 7}, "describe the model again"),
    ({**LLAMA, "layers": LLAMA["layers"] * 200}, "at most 4096 are read"),
    ({**LLAMA, "layers": LLAMA["layers"] * 5000}, "layers: "), ({**LLAMA, "hidden": -1}, "hidden: "),
    ({**LLAMA, "unknown": 1}, "unknown is not a key of a description"),
    ({key: LLAMA[key] for key in LLAMA if key != "layers"}, "layers is missing"),
    (" " * (1 << 20) + "{}", "larger than 1 MiB")])
def test_a_description_that_nobody_wrote_so_is_a_problem_at_its_name(description: Any, message: str) -> None:
    problems = found(fleet("{description: models/large.json}"), description)
    assert len(problems) == 1
    assert problems[0].startswith("fleet.yaml:8:26: error FL091: ")
    assert message in problems[0]


@pytest.mark.parametrize(("model", "command", "message"), [
    ("null", "vllm, serve, m", "nothing is known of the model"),
    ("{parameters: 8B}", "./run.sh, vllm", "the memory of this engine is not known")])
def test_a_claim_needs_an_estimate_to_be_auto(model: str, command: str, message: str) -> None:
    text = fleet(model, "{gpus: 1, vram: auto}").replace("vllm, serve, $(FLEETCTL_MODEL)", command)
    (problem,) = found(text)
    assert problem.startswith(f"fleet.yaml:12:36: error FL092: vram: auto is an estimate, and {message}")
    assert found(fleet("{parameters: 8B}", "{gpus: 1, vram: auto}")) == []


def test_a_shape_tells_it_for_its_models() -> None:
    text = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  shapes:
    big:
      model: {parameters: 8B}
      workers:
      - {name: main, members: [{resources: {gpus: 1}, engine: {command: [run]}}]}
  models:
  - {key: one, replicas: 1, shape: big}
  - {key: two, replicas: 1, shape: big, model: {parameters: 9B}}
"""
    models = inspect({"fleet.yaml": text}).sound().models
    assert [model.description and model.description.parameters for model in models] == [8 * 10 ** 9, 9 * 10 ** 9]
