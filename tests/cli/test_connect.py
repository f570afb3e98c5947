from __future__ import annotations

import pytest

from fleetctl.cli.connect import refuse_two_readers, resolve_address, resolve_namespace
from fleetctl.documents.fleet import Cluster
from fleetctl.errors import InventoryError, UsageError

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


@pytest.mark.parametrize(("flag", "environ", "cluster", "namespace"), [
    ("flag", {"FLEETCTL_NAMESPACE": "env"}, CLUSTER, "flag"),
    (None, {"FLEETCTL_NAMESPACE": "env"}, CLUSTER, "env"),
    (None, {}, CLUSTER, "from-file"),
    (None, {}, Cluster(), "fleet"),
])
def test_the_namespace_comes_from_flag_then_environment_then_file(
    flag: str | None, environ: dict[str, str], cluster: Cluster, namespace: str
) -> None:
    assert resolve_namespace(flag, environ, cluster) == namespace


@pytest.mark.parametrize(("files", "inventory"), [(["-"], "-"), (["-", "-"], None)])
def test_standard_input_is_one_thing(files: list[str], inventory: str | None) -> None:
    with pytest.raises(UsageError):
        refuse_two_readers(files, inventory)
