"""Stands in for Ray's binding to NVML: the calls that the agent makes, on cards that a test describes."""

# ruff: noqa: N801, N802 - the names are NVML's
from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

MIB = 1 << 20


@dataclass
class Device:
    """A card or a MIG device. Memory in MiB; None = not reported. `parts` = the devices in its MIG slots.

    `fails` = the calls that the driver refuses for it, with its reason. `remapped` = corrected and uncorrected rows,
    whether some wait for a reset, and whether replacing one has failed.
    """

    uuid: str
    total: int | None = 81_559
    used: int = 0
    reserved: int = 600
    parts: list[Device | None] | None = None
    pids: tuple[int, ...] = ()
    drawing: tuple[int, ...] = ()
    fails: dict[str, str] = field(default_factory=dict)
    uncorrected: int | None = None
    remapped: tuple[int, int, int, int] | None = None
    pages_pending: bool = False


class NVMLError(Exception):
    """The driver's error."""


class NVMLError_NotSupported(NVMLError):
    """The card does not support this query."""


@dataclass
class Nvml:
    """The binding. `old` = that of Ray 2.49, with only one memory query, and bytes for text; `old_driver` supports
    only that query."""

    devices: list[Device] = field(default_factory=list)
    trouble: str | None = None
    old: bool = False
    old_driver: bool = False
    opened: int = 0
    NVMLError: type[NVMLError] = NVMLError
    NVMLError_NotSupported: type[NVMLError] = NVMLError_NotSupported

    def __post_init__(self) -> None:
        if not self.old:
            self.nvmlMemory_v2 = 0x02000028

    def nvmlInit(self) -> None:
        if self.trouble:
            raise NVMLError(self.trouble)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        self._require("open", self.devices[index])
        return self.devices[index]

    def _require(self, call: str, device: Device) -> None:
        if call in device.fails:
            raise NVMLError(device.fails[call])

    def nvmlDeviceGetUUID(self, device: Device) -> str | bytes:
        self._require("uuid", device)
        return device.uuid.encode() if self.old else device.uuid

    def nvmlDeviceGetMemoryInfo(self, device: Device, **version: int) -> SimpleNamespace:
        self._require("memory", device)
        if version and (self.old or self.old_driver):
            raise NVMLError("Function Not Found")
        if device.total is None:
            raise NVMLError_NotSupported("Not Supported")
        used = device.used if version else device.used + device.reserved
        free = device.total - device.used - device.reserved
        return SimpleNamespace(total=device.total * MIB, used=used * MIB, free=free * MIB)

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device) -> list[SimpleNamespace]:
        self._require("processes", device)
        if self.old_driver:
            raise NVMLError("Function Not Found")
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in device.pids]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device: Device) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in device.drawing]

    def nvmlDeviceGetTotalEccErrors(self, device: Device, kind: int, counter: int) -> int:
        assert (kind, counter) == (1, 0), "uncorrected, volatile"
        if device.uncorrected is None:
            raise NVMLError_NotSupported("Not Supported")
        return device.uncorrected

    def nvmlDeviceGetRemappedRows(self, device: Device) -> tuple[int, int, int, int]:
        if device.remapped is None:
            raise NVMLError_NotSupported("Not Supported")
        return device.remapped

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Device) -> int:
        return int(device.pages_pending)

    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]:
        if device.uuid == "GPU-cannot-be-divided":
            raise NVMLError("Not Supported")
        return [int(device.parts is not None), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:
        self._require("slots", device)
        assert device.parts is not None
        return len(device.parts)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, place: int) -> Device:
        part = ([*(device.parts or []), *[None] * 7])[place]
        if part is None:
            raise NVMLError("Not Found")
        return part
