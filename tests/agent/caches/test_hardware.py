"""The kind of cards, their driver and the CPU's instruction set, as the key of a cache names them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from nvml_stand_in import NVMLError

from fleetctl.agent.caches import hardware
from fleetctl.agent.caches.hardware import hardware_of


class Binding:
    """Ray's binding to NVML, as the key asks it. `text` = what the driver answers by its call."""

    NVMLError = NVMLError

    def __init__(self, old: bool = False, hangs: bool = False, fails: str = "") -> None:
        self._old, self.hangs, self._fails, self.opened = old, hangs, fails, 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1
        if self.hangs:
            time.sleep(5)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> bytes:  # noqa: N802
        assert isinstance(uuid, bytes)
        if self._fails == "card":
            raise NVMLError("lost")
        return uuid

    def nvmlDeviceGetCudaComputeCapability(self, _: bytes) -> tuple[int, int]:  # noqa: N802
        return 9, 0

    def nvmlDeviceGetName(self, uuid: bytes) -> str | bytes:  # noqa: N802
        name = f"NVIDIA {uuid.decode()[:4]}"
        return name.encode() if self._old else name

    def nvmlSystemGetDriverVersion(self) -> str | bytes:  # noqa: N802
        return b"570.1" if self._old else "570.1"


def asked(monkeypatch: pytest.MonkeyPatch, binding: Any, uuids: list[str], *, devices: bool = True) -> Any:
    monkeypatch.setattr(hardware, "load_nvml", lambda: binding)
    monkeypatch.setattr(hardware, "has_devices", lambda: devices)
    monkeypatch.setattr(hardware, "TIMEOUT_S", 0.2 if getattr(binding, "hangs", False) else 60.0)
    return hardware_of(uuids, has_cards=True)


@pytest.mark.parametrize("old", [False, True])
def test_cards_have_their_kind_and_driver(monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    binding = Binding(old)
    found = asked(monkeypatch, binding, ["H100-1", "H100-2", "H200-1"])
    assert (found.cards, found.driver, found.unknown) == (
        ("NVIDIA H100 9.0", "NVIDIA H100 9.0", "NVIDIA H200 9.0"), "570.1", "")
    assert binding.opened == 0


@pytest.mark.parametrize(("binding", "uuids"), [
    (None, ["H100-1"]), (Binding(), []), (Binding(hangs=True), ["H100-1"]), (Binding(fails="card"), ["H100-1"]),
    (object(), [])])
def test_cards_of_which_the_driver_tells_nothing_are_unknown(
    monkeypatch: pytest.MonkeyPatch, binding: Any, uuids: list[str]
) -> None:
    found = asked(monkeypatch, binding, uuids)
    assert (found.cards, bool(found.unknown)) == ((), True)


def test_simulated_cards_and_none_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = asked(monkeypatch, None, [], devices=False)
    assert simulated == hardware_of([], has_cards=False)
    assert (simulated.cards, simulated.driver, simulated.unknown) == ((), "", "")


@pytest.mark.parametrize(("text", "flags"), [
    ("processor\t: 0\nflags\t\t: fpu avx2 avx2 fma\n\nprocessor\t: 1\nflags\t\t: fpu\n", ("avx2", "fma", "fpu")),
    ("processor : 0\nFeatures\t: asimd fp sve\n", ("asimd", "fp", "sve")), ("", ())])
def test_the_instruction_set_is_that_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, flags: tuple[str, ...]
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(hardware, "CPU_INFO", str(tmp_path / "cpuinfo"))
    assert hardware.instruction_set() == flags
    monkeypatch.setattr(hardware, "CPU_INFO", str(tmp_path / "nowhere"))
    assert hardware.instruction_set() == ()
