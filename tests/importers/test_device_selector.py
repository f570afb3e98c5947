"""Device selectors: what a fleet file can say becomes a field, and everything else is kept in the author's words."""

from __future__ import annotations

import pytest

from fleetctl.importers.accelerators import accelerator_of_label, accelerator_of_product
from fleetctl.importers.device_selector import Wanted, read_selector

GIB = 1 << 30
MEMORY = 'device.capacity["gpu.nvidia.com"].memory'
PRODUCT = 'device.attributes["gpu.nvidia.com"].productName'


def wanted(*selectors: str) -> Wanted:
    found = Wanted()
    for selector in selectors:
        read_selector(selector, found)
    return found


@pytest.mark.parametrize("selector", [
    f'{MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f'0 <= {MEMORY}.compareTo(quantity("40Gi"))',
    f'quantity("40Gi").compareTo({MEMORY}) <= 0',
    f'0 >= quantity("40Gi").compareTo({MEMORY})',
    f'!({MEMORY}.isLessThan(quantity("40Gi")))',
    f'!({MEMORY}.compareTo(quantity("40Gi")) < 0)',
    f'!quantity("40Gi").isGreaterThan({MEMORY})',
    "device.capacity['gpu.nvidia.com']['memory'].compareTo(quantity('40Gi')) >= 0",
])
def test_every_way_to_ask_for_a_least_memory_is_vram(selector: str) -> None:
    assert (wanted(selector).memory, wanted(selector).kept) == ((40 * GIB, "40Gi"), [])


def test_more_than_is_one_byte_more() -> None:
    assert wanted(f'{MEMORY}.isGreaterThan(quantity("40Gi"))').memory == (40 * GIB + 1, str(40 * GIB + 1))


def test_of_several_bounds_the_greatest_holds() -> None:
    both = wanted(f'{MEMORY}.compareTo(quantity("20Gi")) >= 0 && {MEMORY}.compareTo(quantity("81559Mi")) >= 0',
                  f'{MEMORY}.compareTo(quantity("40Gi")) >= 0')
    assert both.memory == (81559 << 20, "81559Mi")


@pytest.mark.parametrize("condition", [
    f'{MEMORY}.compareTo(quantity("80Gi")) < 0',
    f'{MEMORY}.compareTo(quantity("80Gi")) == 0',
    f'{MEMORY}.isGreaterThan(quantity("lots"))',
    'device.attributes["gpu.nvidia.com"].architecture == "Hopper"',
    'device.attributes["gpu.nvidia.com"].cudaComputeCapability.compareTo(semver("9.0.0")) >= 0',
    f'{PRODUCT}.lowerAscii().matches("^.*h100.*$")',
    f'{PRODUCT} != "NVIDIA L4"',
    f'{PRODUCT} == "NVIDIA RTX PRO 6000 Blackwell Server Edition"',
    f'{PRODUCT} == "NVIDIA L4" || {MEMORY}.compareTo(quantity("40Gi")) >= 0',
    'device.driver != "gpu.amd.com"',
    f'device.driver == "gpu.nvidia.com" ? {MEMORY}.compareTo(quantity("1Gi")) >= 0 : false',
])
def test_a_condition_without_a_counterpart_is_kept_word_for_word(condition: str) -> None:
    found = wanted(f'device.driver == "gpu.nvidia.com" && ({condition})')
    assert (found.kept, found.memory, found.types) == ([condition], None, None)


@pytest.mark.parametrize(("selector", "types"), [
    (f'{PRODUCT} == "NVIDIA H100 80GB HBM3"', {"H100"}),
    (f'"NVIDIA L40S" == {PRODUCT}', {"L40S"}),
    (f'{PRODUCT} in ["NVIDIA L4", "NVIDIA A100-SXM4-40GB"]', {"L4", "A100"}),
    (f'{PRODUCT} == "Tesla T4" || {PRODUCT} in ["NVIDIA A10G"]', {"T4", "A10G"}),
])
def test_a_product_by_its_full_name_is_rays_accelerator_type(selector: str, types: set[str]) -> None:
    assert (wanted(selector).types, wanted(selector).kept) == (types, [])


def test_two_products_of_one_card_leave_none() -> None:
    assert wanted(f'{PRODUCT} == "NVIDIA L4"', f'{PRODUCT} == "NVIDIA H200"').types == frozenset()


@pytest.mark.parametrize(("selector", "is_gpu"), [
    ('device.driver == "gpu.nvidia.com"', True), (f'{MEMORY}.compareTo(quantity("1Gi")) >= 0', True),
    ('device.driver == "dra.net"', False), ('device.attributes["dra.net"].rdma == true', False), ("true", None),
    ('device.attributes.size() > 0', None),
])
def test_what_device_it_is_is_told_by_its_driver_alone(selector: str, is_gpu: bool | None) -> None:
    assert wanted(selector).is_gpu is is_gpu


def test_what_holds_for_every_whole_card_says_nothing() -> None:
    assert wanted('true && device.attributes["gpu.nvidia.com"].type == "gpu"').kept == []


@pytest.mark.parametrize(("product", "accelerator"), [
    ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-40GB", "A100"), ("Tesla V100-SXM2-16GB", "V100"),
    ("NVIDIA GH200 480GB", "GH200"), ("NVIDIA RTX PRO 6000 Blackwell", None), ("NVIDIA GeForce RTX 4090", None),
    ("", None),
])
def test_only_a_name_all_releases_of_ray_agree_on_is_a_type(product: str, accelerator: str | None) -> None:
    assert accelerator_of_product(product) == accelerator


@pytest.mark.parametrize(("key", "value", "accelerator"), [
    ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", "H100"), ("nvidia.com/gpu.product", "Tesla-T4-SHARED", "T4"),
    ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", None),
    ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb", "H100"), ("cloud.google.com/gke-accelerator", "tpu", None),
    ("fleet.io/pool", "nvidia-l4", None),
])
def test_labels_of_kubernetes_that_name_a_card(key: str, value: str, accelerator: str | None) -> None:
    assert accelerator_of_label(key, value) == accelerator
