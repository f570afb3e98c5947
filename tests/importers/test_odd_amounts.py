"""An amount without an end is no amount: it is said, and the import goes on."""

from __future__ import annotations

import pytest
from import_cases import account, imported

from fleetctl.fleetfile.sources import SourceBytes

NDIF = "models:\n- {checkpoint: a/b, size_bytes: 1000, padding_factor: AMOUNT}\n"
SERVE = ("applications:\n- name: a\n  import_path: a:b\n  deployments:\n"
         "  - {name: d, num_replicas: 1, ray_actor_options: {num_gpus: AMOUNT}}\n")


@pytest.mark.parametrize("amount", [".inf", "-.inf", ".nan", "1e999"])
@pytest.mark.parametrize(("text", "field"), [(NDIF, "padding_factor"), (SERVE, "num_gpus")])
def test_an_amount_without_an_end_is_reported(text: str, field: str, amount: str) -> None:
    result = imported([SourceBytes("a.yaml", text.replace("AMOUNT", amount).encode())])
    assert f"{field}: not read: a finite number is expected here" in account(result)
    assert [model.value["replicas"] for model in result.draft.models] == [1]
