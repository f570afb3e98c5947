"""Device selectors: conditions with a counterpart become fields, all others are kept in the author's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.importers.modelplane import Wanted, read_selector
from fleetctl.importers.objects import accelerator_of_label, accelerator_of_product

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
    f'!{MEMORY}.isLessThan(quantity("40Gi"))',
    f'true &&\n  {MEMORY}.compareTo(quantity("40Gi"))>=0',
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
])
def test_a_minimum_of_memory_is_vram(selector: str) -> None:
    assert (wanted(selector).memory, wanted(selector).kept) == ((40 * GIB, "40Gi"), [])


def test_an_exclusive_bound_is_one_byte_more() -> None:
    for selector in (f'{MEMORY}.isGreaterThan(quantity("40Gi"))', f'{MEMORY}.compareTo(quantity("40Gi")) > 0'):
        assert wanted(selector).memory == (40 * GIB + 1, str(40 * GIB + 1))


def test_the_largest_of_several_bounds_counts() -> None:
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
    f'0 <= {MEMORY}.compareTo(quantity("40Gi"))', f'!({MEMORY}.compareTo(quantity("40Gi")) < 0)',
    f'"NVIDIA L40S" == {PRODUCT}', f'{PRODUCT} == "NVIDIA L4" || {PRODUCT} == "NVIDIA L40S"', f'{PRODUCT} == "a \\" b"',
])
def test_a_condition_without_a_counterpart_is_kept_word_for_word(condition: str) -> None:
    found = wanted(f'device.driver == "gpu.nvidia.com" && ({condition})')
    assert (found.kept, found.memory, found.types) == ([f"({condition})"], None, None)


@pytest.mark.parametrize("selector", [
    f'{PRODUCT} == "NVIDIA L4" || true && {MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f'x ? true && {MEMORY}.compareTo(quantity("40Gi")) >= 0 : true',
    f'true // && {MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f"'a && b && c'.size() > {MEMORY}", "device.driver ==", '"open', "a) && (true", "",
])
def test_an_ambiguous_condition_is_kept_whole(selector: str) -> None:
    assert wanted(selector) == Wanted(drivers=wanted(selector).drivers, kept=[selector])


@given(st.text(alphabet="ab.\"'()[]{}&|=!<>?:,+-*/ 019\\\n", max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert wanted(text).memory is None


def test_a_long_selector_is_read_quickly() -> None:
    found = wanted(" && ".join([f'{MEMORY}.compareTo(quantity("{number}Mi")) >= 0' for number in range(5000)]))
    assert (found.memory, found.kept) == ((4999 << 20, "4999Mi"), [])


@pytest.mark.parametrize(("selector", "types"), [
    (f'{PRODUCT} == "NVIDIA H100 80GB HBM3"', {"H100"}),
    (f'{PRODUCT} in ["NVIDIA L4", "NVIDIA A100-SXM4-40GB"]', {"L4", "A100"}),
    (f"{PRODUCT} in ['Tesla T4']", {"T4"}),
])
def test_a_product_by_its_full_name_is_rays_accelerator_type(selector: str, types: set[str]) -> None:
    assert (wanted(selector).types, wanted(selector).kept) == (types, [])


def test_two_different_products_give_no_accelerator_type() -> None:
    assert wanted(f'{PRODUCT} == "NVIDIA L4"', f'{PRODUCT} == "NVIDIA H200"').types == frozenset()


@pytest.mark.parametrize(("selector", "is_gpu"), [
    ('device.driver == "gpu.nvidia.com"', True), (f'{MEMORY}.compareTo(quantity("1Gi")) >= 0', True),
    ('device.driver == "dra.net"', False), ('device.attributes["dra.net"].rdma == true', False), ("true", None),
    ('device.attributes.size() > 0', None),
])
def test_only_the_driver_decides_the_kind_of_device(selector: str, is_gpu: bool | None) -> None:
    assert wanted(selector).is_gpu is is_gpu


def test_a_condition_true_for_every_card_is_dropped() -> None:
    assert wanted('true && device.attributes["gpu.nvidia.com"].type == "gpu"').kept == []


@pytest.mark.parametrize(("product", "accelerator"), [
    ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-40GB", "A100"), ("Tesla V100-SXM2-16GB", "V100"),
    ("NVIDIA GH200 480GB", "GH200"), ("NVIDIA RTX PRO 6000 Blackwell", None), ("NVIDIA GeForce RTX 4090", None),
    ("", None),
])
def test_only_a_name_in_all_releases_of_ray_is_an_accelerator_type(product: str, accelerator: str | None) -> None:
    assert accelerator_of_product(product) == accelerator


@pytest.mark.parametrize(("key", "value", "accelerator"), [
    ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", "H100"), ("nvidia.com/gpu.product", "Tesla-T4-SHARED", "T4"),
    ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", None),
    ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb", "H100"), ("cloud.google.com/gke-accelerator", "tpu", None),
    ("fleet.io/pool", "nvidia-l4", None),
])
def test_kubernetes_labels_that_name_a_card_are_translated(key: str, value: str, accelerator: str | None) -> None:
    assert accelerator_of_label(key, value) == accelerator
