"""The NVIDIA driver's report of this host's cards, from NVML, whose binding Ray ships, or from `nvidia-smi`."""

from __future__ import annotations

import csv
import ctypes
import glob
import subprocess
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .in_thread import Late, in_thread

MIB = 1 << 20
DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/dri/render*")
LIBRARY = "libnvidia-ml.so.1"
MEMORY = "/proc/meminfo"
NO_DRIVER = "no NVIDIA driver was found on this node"
TIMEOUT_S = 30.0
"""A driver that hangs must not block the replica's start."""
QUERY = "--query-gpu=index,uuid,memory.total,memory.used,memory.free"
MOST_PARTS = 7
"""MIG devices of one card."""
UNCORRECTED, SINCE_RESET = 1, 0
"""NVML's numbers for a type of memory errors, and for a counter of them."""
NOT_FAILED = ("[n/a]", "[not supported]", "[insufficient permissions]")
"""Values of `nvidia-smi` for what a card does not have or we may not see. Any other text is a failure of the card."""


class DriverCard(NamedTuple):
    """A card, or a MIG device with the `number` of its card. Amounts in bytes; `uuid` empty = not reported.

    `is_unified` = no memory of its own, so the amounts are the host's. `pids` = processes that use its memory. `fault`
    = why its memory must not be trusted until the card is reset, or ever again.
    """

    number: str
    uuid: str
    total: int
    used: int
    free: int
    is_part: bool = False
    is_divided: bool = False
    is_unified: bool = False
    pids: Tuple[int, ...] = ()
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.uuid} of card {self.number}" if self.is_part else f"card {self.number}"


class CardReport(NamedTuple):
    """The cards of this host as the driver reports them, or why there is no report. Neither = the host has no card.

    `lost` = the reasons, by number, for cards that the driver counts and cannot open. If there is `trouble` as well,
    the driver has reported only some of the cards.
    """

    cards: List[DriverCard]
    trouble: Optional[str] = None
    lost: Mapping[str, str] = {}


def query_driver(env: Mapping[str, str]) -> CardReport:
    """Return the driver's report of all cards of this host, in the order of their numbers."""
    nvml = load_nvml()
    if nvml is None:
        return query_nvidia_smi(env) or CardReport([], NO_DRIVER if has_devices() else None)
    cards: List[DriverCard] = []
    lost: Dict[str, str] = {}
    try:
        answer = in_thread(lambda: query_nvml(nvml, cards, lost), TIMEOUT_S, "fleetctl-cards")
    except Late:
        return CardReport(cards[:], f"the NVIDIA driver did not answer within {TIMEOUT_S:g} s", dict(lost))
    return (query_nvidia_smi(env) or answer) if answer.trouble else answer


def has_devices() -> bool:
    """Return whether this host has a GPU of any kind; if not, the GPUs that Ray counts are simulated."""
    return any(glob.glob(pattern) for pattern in DEVICES)


def load_nvml() -> Any:
    """Return Ray's binding to NVML, or None if the library is missing."""
    try:
        ctypes.CDLL(LIBRARY)  # first: the binding is slow to import, and most nodes without it have no card
        import ray._private.thirdparty.pynvml as nvml
    except (OSError, ImportError):
        return None
    return nvml


def query_nvml(
    nvml: Any, cards: Optional[List[DriverCard]] = None, lost: Optional[Dict[str, str]] = None
) -> CardReport:
    """Read all cards, and the MIG devices of divided ones. A failing card is `lost`; the others are read all the same.

    A host's only card has the host's memory if it has none of its own. Other cards without a report are omitted.
    `cards` and `lost` receive what has been read so far, also if the driver hangs at a card.
    """
    cards, lost = [] if cards is None else cards, {} if lost is None else lost
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return CardReport([], f"NVML: {error}")
    try:
        count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            lost[str(index)] = "the driver does not answer"  # until it does
            try:
                cards.extend(_card_and_parts(nvml, index))
                del lost[str(index)]
            except nvml.NVMLError as error:
                lost[str(index)] = str(error)
        if count == 1 and not cards and not lost:
            cards.extend(_unified(nvml))
    except nvml.NVMLError as error:
        return CardReport(cards, f"NVML: {error}", lost)
    finally:
        nvml.nvmlShutdown()
    return CardReport(cards, None if cards or lost else "the NVIDIA driver reports no card", lost)


def _card_and_parts(nvml: Any, index: int) -> List[DriverCard]:
    """Return the card and its MIG devices; raises NVMLError if neither it nor any of these can be read."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)  # of a card that cannot be divided: none
    is_divided = bool(mode and mode[0])
    slots = _ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) if is_divided else 0
    parts: List[DriverCard] = []
    for slot in range(MOST_PARTS if slots is None else slots):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            parts.append(_read(nvml, part, index, is_part=True))
        except nvml.NVMLError:  # an empty MIG slot, or a device without a report
            continue
    try:
        return [_read(nvml, handle, index, is_divided=is_divided), *parts]
    except nvml.NVMLError_NotSupported:
        return parts
    except nvml.NVMLError:
        if not parts:
            raise
        return parts


def _read(nvml: Any, handle: Any, index: int, is_part: bool = False, is_divided: bool = False) -> DriverCard:
    """Read a card or a MIG device; raises NVMLError without its memory."""
    memory = _memory(nvml, handle)
    return DriverCard(str(index), _uuid(nvml, handle), memory.total, memory.used, memory.free, is_part, is_divided,
                      pids=_pids(nvml, handle), fault="" if is_part else _fault(nvml, handle))


def _ask(nvml: Any, query: str, *given: Any) -> Any:
    """Return the answer to a query that not every card, driver and binding knows; None without an answer."""
    try:
        return getattr(nvml, query)(*given)
    except (nvml.NVMLError, AttributeError):
        return None


def _uuid(nvml: Any, handle: Any) -> str:
    uuid = _ask(nvml, "nvmlDeviceGetUUID", handle) or ""
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)  # the binding of Ray 2.49 returns bytes


def _pids(nvml: Any, handle: Any) -> Tuple[int, ...]:
    """Return the processes that compute on a card, and those that draw on it, such as a display server."""
    listed = [*(_ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()),
              *(_ask(nvml, "nvmlDeviceGetGraphicsRunningProcesses", handle) or ())]
    return tuple(sorted({int(process.pid) for process in listed}))


def _fault(nvml: Any, handle: Any) -> str:
    """Return what is wrong with the memory of a card by the driver's counters; empty = nothing, or it has none."""
    errors = _ask(nvml, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, SINCE_RESET)
    _, _, pending, failed = _ask(nvml, "nvmlDeviceGetRemappedRows", handle) or (0, 0, 0, 0)
    pending = pending or _ask(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", handle)  # before Ampere
    return ", ".join(text for text, is_so in (
        ("memory that could not be replaced", failed),
        (f"{errors} uncorrected memory error{'' if errors == 1 else 's'} since its last reset", errors),
        ("memory that waits for a reset of the card to be replaced", pending)) if is_so)


def _unified(nvml: Any) -> List[DriverCard]:
    """Return the only card with the host's memory, if the driver does not support a report of its memory."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    try:
        _memory(nvml, handle)
    except nvml.NVMLError_NotSupported:
        total, free = host_memory()
        return [DriverCard("0", _uuid(nvml, handle), total, total - free, free, is_unified=True)]
    except nvml.NVMLError:
        pass
    return []


def host_memory() -> Tuple[int, int]:
    """Return the host's total and available memory; the page cache counts as available."""
    with open(MEMORY, encoding="ascii") as rows:
        found = dict(row.split(":") for row in rows)
    total, free = (int(found[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    return total, free


def _memory(nvml: Any, handle: Any) -> Any:
    """Return total, used and free memory. The older call counts the driver's own memory as used."""
    try:
        if hasattr(nvml, "nvmlMemory_v2"):  # not in the binding of Ray 2.49
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:  # not in the driver
        pass
    return nvml.nvmlDeviceGetMemoryInfo(handle)


def query_nvidia_smi(env: Mapping[str, str]) -> Optional[CardReport]:
    """Read all whole cards, row by row: it also exits with an error because of one card. None = it lists no card."""
    try:
        done = subprocess.run(["nvidia-smi", QUERY, "--format=csv,noheader,nounits"], env=dict(env),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    cards: List[DriverCard] = []
    lost: Dict[str, str] = {}
    others = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if len(cells) != 5 or not cells[0].isdigit():
            others.append(", ".join(cells))
        elif all(amount.isdigit() for amount in cells[2:]):
            total, used, free = (int(amount) * MIB for amount in cells[2:])
            cards.append(DriverCard(cells[0], cells[1], total, used, free))
        else:
            failed = next((cell for cell in cells[2:] if not cell.isdigit() and cell.lower() not in NOT_FAILED), None)
            if failed is not None:
                lost[cells[0]] = failed.strip("[]")
    if done.returncode == 0:
        return CardReport(cards, None, lost)
    if not cards and not lost:
        return None
    return CardReport(cards, f"nvidia-smi: {'; '.join(others)[:200] or f'exit code {done.returncode}'}", lost)
