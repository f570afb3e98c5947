from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.process import refuse_two_readers
from fleetctl.documents.fleet import Cluster
from fleetctl.errors import InventoryError, UsageError
from fleetctl.workflow.dashboard import resolve_address

CLUSTER = Cluster.model_validate({"address": "http://file:8265", "namespace": "from-file"})


@pytest.mark.parametrize(("flag", "environ", "address"), [
    ("http://flag", {"FLEETCTL_ADDRESS": "http://env"}, "http://flag"),
    (None, {"FLEETCTL_ADDRESS": "http://env"}, "http://env"),
    (None, {"FLEETCTL_ADDRESS": ""}, "http://file:8265"),
    (None, {}, "http://file:8265"),
])
def test_the_address_comes_from_flag_then_environment_then_file(
    flag: str | None, environ: dict[str, str], address: str
) -> None:
    assert resolve_address(flag, environ, CLUSTER.address) == address


def test_without_an_address_the_error_names_every_way_to_give_one() -> None:
    with pytest.raises(InventoryError) as caught:
        resolve_address(None, {}, None)
    assert all(way in (caught.value.hint or "") for way in ("--address", "FLEETCTL_ADDRESS", "spec.cluster.address"))


@pytest.mark.parametrize(("arguments", "suggested"), [
    (("plan", "-f", "{}"), True), (("inventory",), True), (("map", "-f", "{}"), True),
    (("history",), False), (("apply", "-f", "{}", "--yes"), False), (("evict", "org/one/0"), False),
])
def test_only_commands_with_the_inventory_flag_suggest_it(
    cli, fleet_file: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], suggested: bool
) -> None:
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    result = cli(*(argument.format(fleet_file) for argument in arguments))
    assert result.code == 1
    assert "error: no cluster address" in result.err
    assert ("--inventory" in result.err) is suggested


@pytest.mark.parametrize(("files", "inventory"), [(["-"], "-"), (["-", "-"], None)])
def test_standard_input_may_be_named_only_once(files: list[str], inventory: str | None) -> None:
    with pytest.raises(UsageError):
        refuse_two_readers(files, inventory)
