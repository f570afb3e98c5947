"""The doctor's look at described models: those that run on cards too small for them, and those that fit nowhere."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.doctor.evidence import Evidence
from fleetctl.doctor.fleet import check_memory
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.inventory import Inventory
from tests.fleetfile.memory_tree import inspect
from tests.sizing.test_public_models import described

GIB = 1 << 30


def found(key: str, args: list[str], *, running: bool = False, card_gib: int | None = 80, check: str = "block"
          ) -> list[Diagnosed]:
    """Return what the doctor finds of a described model of one card, on a node with such cards."""
    member = {"resources": {"gpus": 1}, "engine": {"command": ["vllm", "serve", "m"], "args": args}}
    document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
        "key": key, "replicas": 1, "model": {"description": "m.json"}, "memoryCheck": check,
        "workers": [{"name": "main", "members": [member]}]}]}}
    loaded = inspect({"fleet.yaml": json.dumps(document), "m.json": json.dumps(described(key).as_json())})
    cards = [{"index": 0, "memoryTotal": card_gib and card_gib * GIB}]
    replica: dict[str, Any] = {
        "model": key, "replicaId": 0, "level": "HOT", "state": "ALIVE", "fleet": "lab",
        "specHash": loaded.sound().models[0].spec_hash, "members": [{"group": "main", "nodeId": "a", "gpus": 10_000}]}
    seen = Inventory.model_validate({
        "observedAt": "2026-01-01T00:00:00Z", "source": "test", "complete": True, "nodes": [
            {"id": "a", "name": "a", "gpus": cards, "labels": {"ray.io/accelerator-type": "H100"},
             "resources": {"total": {"GPU": 1}}}], "replicas": [replica] if running else []})
    return list(check_memory(Evidence("2026-01-01T00:00:00Z", loaded, seen=seen)))


def test_a_wanted_model_that_fits_on_no_card_is_an_error_with_the_shape_that_would() -> None:
    (one,) = found("qwen3-30b-a3b", ["--max-model-len", "4096"], card_gib=24)
    assert (one.code, one.severity, one.subject) == ("MODEL_TOO_LARGE", "error", "qwen3-30b-a3b")
    assert "56.87Gi of weights and 384Mi for one request of 4,096 tokens on its card, and H100 has 24Gi" in one.message


def test_what_only_may_not_fit_is_a_warning() -> None:
    for args, check in ((["--cpu-offload-gb", "60"], "block"), (["--max-model-len", "4096"], "warn")):
        (one,) = found("qwen3-30b-a3b", args, card_gib=24, check=check)
        assert (one.code, one.severity) == ("MODEL_MAY_NOT_FIT", "warning")


def test_a_replica_that_runs_on_a_card_that_is_too_small_by_an_estimate_is_a_warning() -> None:
    (one,) = found("llama-3.1-8b", [], running=True, card_gib=24)
    assert (one.code, one.severity, one.subject) == ("MODEL_MAY_NOT_FIT", "warning", "llama-3.1-8b")
    assert one.message.startswith("it runs on a: 14.96Gi of weights")
    assert "it is described wrongly" in one.advice


def test_nothing_is_found_of_what_fits_or_cannot_be_judged() -> None:
    assert found("llama-3.1-8b", ["--max-model-len", "8192"], running=True) == []
    assert found("llama-3.1-8b", ["--max-model-len", "8192"]) == []
    assert found("llama-3.1-405b", [], card_gib=None) == []
