"""The variables by which an engine sees its cards: only granted cards, and no variables that contradict each other."""

from __future__ import annotations

import pytest
import ray._private.accelerators as accelerators
from ray._private.accelerators import AMDGPUAcceleratorManager, IntelGPUAcceleratorManager, NvidiaGPUAcceleratorManager

from fleetctl.agent import node

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@pytest.fixture
def made_by(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let Ray report this vendor for the node's GPUs, as `by(manager)`; no such variable is set here."""
    for name in (CUDA, HIP, ROCR, "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def by(patch: pytest.MonkeyPatch, manager: object) -> None:
    patch.setattr(accelerators, "get_accelerator_manager_for_resource", lambda resource: {"GPU": manager}[resource])


def test_on_an_nvidia_node_only_cudas_variable_is_set(made_by: pytest.MonkeyPatch) -> None:
    by(made_by, NvidiaGPUAcceleratorManager)
    assert node.visible_devices(["2", "MIG-x"], {}) == {CUDA: "2,MIG-x"}


def test_on_an_amd_node_hips_variable_agrees_whatever_the_raylet_has(made_by: pytest.MonkeyPatch) -> None:
    """With RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES the engine saw all cards of the raylet in one of the two."""
    by(made_by, AMDGPUAcceleratorManager)
    made_by.setenv("RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES", "1")
    for raylet in ({HIP: "0,1,2,3"}, {}):
        assert node.visible_devices(["2"], raylet) == {CUDA: "2", HIP: "2"}


def test_the_variable_that_rays_numbering_is_based_on_stays_unchanged(made_by: pytest.MonkeyPatch) -> None:
    by(made_by, AMDGPUAcceleratorManager)
    raylet = {ROCR: "4,5,6,7", HIP: "0,1,2,3"}
    for name, value in raylet.items():
        made_by.setenv(name, value)
    assert node.visible_devices(["3"], raylet) == {CUDA: "3", HIP: "3"}


def test_if_ray_cannot_name_the_vendor_the_variables_of_hip_and_cuda_agree(made_by: pytest.MonkeyPatch) -> None:
    by(made_by, AMDGPUAcceleratorManager)
    made_by.setenv(ROCR, "0")  # Ray's manager raises
    assert node.visible_devices(["2"], {ROCR: "0"}) == {CUDA: "2"}
    assert node.visible_devices(["2"], {ROCR: "0", HIP: "0,1"}) == {CUDA: "2", HIP: "2"}


def test_on_an_intel_node_rays_variable_is_set_too(made_by: pytest.MonkeyPatch) -> None:
    by(made_by, IntelGPUAcceleratorManager)
    name = IntelGPUAcceleratorManager.get_visible_accelerator_ids_env_var()
    assert node.visible_devices(["0", "1"], {}) == {
        CUDA: "0,1", name: "level_zero:0,1" if name == "ONEAPI_DEVICE_SELECTOR" else "0,1"}
    made_by.setattr(node, "ray_gpu_variable", lambda: "ONEAPI_DEVICE_SELECTOR")  # as in Ray 2.49
    assert node.visible_devices(["0", "1"], {}) == {CUDA: "0,1", "ONEAPI_DEVICE_SELECTOR": "level_zero:0,1"}


def test_without_cards_no_card_is_visible_and_the_vendor_is_not_queried(made_by: pytest.MonkeyPatch) -> None:
    made_by.delattr(node, "ray_gpu_variable")
    assert node.visible_devices([], {}) == {CUDA: ""}
    assert node.visible_devices([], {HIP: "0,1"}) == {CUDA: "", HIP: ""}
