"""The NVIDIA driver's report of this host's cards, from NVML, whose binding Ray ships, or from `nvidia-smi`."""

from __future__ import annotations

import csv
import ctypes
import glob
import subprocess
import threading
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

MIB = 1 << 20
DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/dri/render*")
LIBRARY = "libnvidia-ml.so.1"
MEMORY = "/proc/meminfo"
TIMEOUT_S = 30.0
"""A driver that hangs must not block the replica's start."""
QUERY = "--query-gpu=index,uuid,memory.total,memory.used,memory.free"


class Card(NamedTuple):
    """A card, or a MIG device with the `number` of its card. Amounts in bytes.

    `is_unified` = no memory of its own, so the amounts are the host's. `pids` = processes that use its memory.
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

    def __str__(self) -> str:
        return f"{self.uuid} of card {self.number}" if self.is_part else f"card {self.number}"


class Answer(NamedTuple):
    """The cards of this host as the driver reports them, or why there is no report. Neither = the host has no card."""

    cards: List[Card]
    trouble: Optional[str] = None


def query_driver(env: Mapping[str, str]) -> Answer:
    """Return the driver's report of all cards of this host, in the order of their numbers."""
    nvml = load_nvml()
    if nvml is None:
        return query_nvidia_smi(env) or Answer([], "no NVIDIA driver was found on this node" if has_devices() else None)
    answers: List[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(query_nvml(nvml)), name="fleetctl-cards", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if not answers:
        return Answer([], f"the NVIDIA driver did not answer within {TIMEOUT_S:g} s")
    return (query_nvidia_smi(env) or answers[0]) if answers[0].trouble else answers[0]


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


def query_nvml(nvml: Any) -> Answer:
    """Read all cards, and the MIG devices of divided ones.

    A host's only card has the host's memory if it has none of its own. Other cards without a report are omitted.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Answer([], f"NVML: {error}")
    cards: List[Card] = []
    try:
        count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            cards.extend(_card_and_parts(nvml, index))
        if count == 1 and not cards:
            cards.extend(_unified(nvml))
    except nvml.NVMLError as error:
        return Answer([], f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()
    return Answer(cards, None if cards else "the NVIDIA driver reports no card")


def _card_and_parts(nvml: Any, index: int) -> List[Card]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        is_divided = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # a card that cannot be divided
        is_divided = False
    found = [_read(nvml, handle, index, is_divided=is_divided)]
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if is_divided else 0):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except nvml.NVMLError:  # an empty MIG slot
            continue
        found.append(_read(nvml, part, index, is_part=True))
    return [card for card in found if card]


def _read(nvml: Any, handle: Any, index: int, is_part: bool = False, is_divided: bool = False) -> Optional[Card]:
    try:
        memory, uuid = _memory(nvml, handle), _uuid(nvml, handle)
        return Card(str(index), uuid, memory.total, memory.used, memory.free, is_part, is_divided,
                    pids=_pids(nvml, handle))
    except nvml.NVMLError:
        return None


def _uuid(nvml: Any, handle: Any) -> str:
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)  # the binding of Ray 2.49 returns bytes


def _pids(nvml: Any, handle: Any) -> Tuple[int, ...]:
    try:
        return tuple(sorted({int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}))
    except nvml.NVMLError:
        return ()


def _unified(nvml: Any) -> List[Card]:
    """Return the only card with the host's memory, if the driver does not support a report of its memory."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    try:
        _memory(nvml, handle)
    except nvml.NVMLError_NotSupported:
        total, free = host_memory()
        return [Card("0", _uuid(nvml, handle), total, total - free, free, is_unified=True)]
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


def query_nvidia_smi(env: Mapping[str, str]) -> Optional[Answer]:
    """Read all whole cards; None if `nvidia-smi` is missing or fails."""
    try:
        done = subprocess.run(["nvidia-smi", QUERY, "--format=csv,noheader,nounits"], env=dict(env),
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    cards: List[Card] = []
    for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True):
        if len(row) == 5 and all(amount.strip().isdigit() for amount in row[2:]):
            total, used, free = (int(amount) * MIB for amount in row[2:])
            cards.append(Card(row[0].strip(), row[1].strip(), total, used, free))
    return Answer(cards)
