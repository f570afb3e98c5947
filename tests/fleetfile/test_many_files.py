"""A fleet in hundreds of files: the work per file does not grow with their number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fleetctl.fleetfile import extends, rules

from .memory_tree import inspect
from .split_fleets import HEAD

WORKERS = [{"name": "main", "members": [{"resources": {"gpus": 1}, "engine": {"command": ["serve"]}}]}]
COUNT = 64


def fleet_of(count: int) -> dict[str, str]:
    """Files of two models each; the last one has the policy, which names models of all files."""
    files = {}
    for number in range(count):
        spec: dict[str, Any] = {"models": [{"key": f"m{number}-{one}", "replicas": 1, "workers": WORKERS}
                                           for one in range(2)]}
        if number == count - 1:
            spec["policy"] = {"protectedModels": ["m0-0", "nobody"]}
        files[f"{number:03}.yaml"] = json.dumps({**HEAD, "spec": spec})
    return files


def test_rules_read_each_file_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def counted(document: Any) -> Any:
        looked.append(document)
        return models(document)

    models = rules.models
    monkeypatch.setattr(rules, "models", counted)
    files = fleet_of(COUNT)
    assert [problem.code for problem in inspect(files, *files).problems] == ["FL064"]
    assert len(looked) < 10 * COUNT


def test_files_are_joined_in_order_without_copying_all_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def counted(at: int, placed: Sequence[Any]) -> Any:
        copied.append(len(placed))
        return list_of(at, placed)

    list_of = extends._list_of
    monkeypatch.setattr(extends, "_list_of", counted)
    files = fleet_of(COUNT)
    whole = extends.join(inspect(files, *files).documents)
    assert [model["key"] for model in whole.value["spec"]["models"]] == [
        f"m{number}-{one}" for number in range(COUNT) for one in range(2)]
    assert sum(copied) < 2 * COUNT * 10
