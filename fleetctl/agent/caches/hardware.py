"""The kind of a member's cards with their driver, and the CPU's instruction set, as the key of a cache names them."""

from __future__ import annotations

import contextlib
import os
import platform
from typing import Any, List, NamedTuple, Sequence, Tuple

from ..driver import TIMEOUT_S, has_devices, load_nvml
from ..in_thread import Late, in_thread

CPU_INFO, NVIDIA = "/proc/cpuinfo", "/proc/driver/nvidia/version"
FLAGS = ("flags", "Features", "isa", "features")
"""How the kernel names the instruction set, by architecture."""


class Hardware(NamedTuple):
    """`cards` = the kind of each card; `unknown` = why that is not known, empty = it is, or the member has none."""

    cards: Sequence[str]
    driver: str
    cpu: str
    flags: Sequence[str]
    libc: str
    unknown: str = ""


def hardware_of(card_uuids: Sequence[str], has_cards: bool) -> Hardware:
    """Return the hardware that a member has; `has_cards` = it claims cards, also if the driver reports no UUID."""
    libc = ""
    with contextlib.suppress(OSError, ValueError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    own = Hardware((), "", platform.machine(), instruction_set(), libc)
    if not has_cards or not has_devices():
        return own  # no cards, or simulated ones
    cards, driver = kinds_of(card_uuids)
    if not cards or not driver:
        return own._replace(unknown="the driver does not tell the kind of its cards")
    return own._replace(cards=tuple(cards), driver=driver)


def kinds_of(card_uuids: Sequence[str]) -> Tuple[List[str], str]:
    """Return the kind of each card and the driver's version; nothing if the driver hangs or has no NVML."""
    nvml = load_nvml()
    if nvml is None or not card_uuids:
        return [], ""
    try:
        return in_thread(lambda: _ask(nvml, card_uuids), TIMEOUT_S, "fleetctl-cards")
    except (Late, nvml.NVMLError, AttributeError):
        return [], ""


def _ask(nvml: Any, card_uuids: Sequence[str]) -> Tuple[List[str], str]:
    nvml.nvmlInit()
    try:
        kinds = []
        for uuid in card_uuids:
            card = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())  # the binding of Ray 2.49 takes bytes
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(card)
            kinds.append(f"{_text(nvml.nvmlDeviceGetName(card))} {major}.{minor}")
        return kinds, _text(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def instruction_set() -> Tuple[str, ...]:
    """Return the flags of the first CPU, sorted."""
    with contextlib.suppress(OSError), open(CPU_INFO, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, found, value = line.partition(":")
            if found and name.strip() in FLAGS:
                return tuple(sorted(set(value.split())))
    return ()
