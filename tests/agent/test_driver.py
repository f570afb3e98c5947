"""The driver's report of a host's cards: through NVML, `nvidia-smi`, or none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_stand_in import MIB, Device, Nvml

from fleetctl.agent import driver
from fleetctl.agent.driver import CardReport, DriverCard, query_driver, query_nvidia_smi, query_nvml

Install = Callable[[str], dict[str, str]]
WAITS = "memory that waits for a reset of the card to be replaced"
DIVIDED = Device("GPU-b", parts=[Device("MIG-1", 9_856, 12, 0), None, Device("MIG-2", 19_968, 9_000, 0)])


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> Install:
    """Put an `nvidia-smi` whose shell script is `body` on a PATH; return the environment."""

    def install(body: str) -> dict[str, str]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"}

    return install


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Nvml | None], None]:
    """Make this the host's NVML; None = the host has no NVML."""
    return lambda nvml: monkeypatch.setattr(driver, "load_nvml", lambda: nvml)


Use = Callable[[Nvml | None], None]


def listing(*rows: str) -> str:
    return "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF"


def test_cards_are_reported_in_the_drivers_order_and_in_bytes() -> None:
    nvml = Nvml([Device("GPU-a", used=5), Device("GPU-cannot-be-divided", 23_034, 0, 0)])
    assert query_nvml(nvml) == CardReport([
        DriverCard("0", "GPU-a", 81_559 * MIB, 5 * MIB, 80_954 * MIB),
        DriverCard("1", "GPU-cannot-be-divided", 23_034 * MIB, 0, 23_034 * MIB),
    ])
    assert nvml.opened == 0


def test_mig_devices_have_their_own_memory_and_the_number_of_their_card() -> None:
    cards = query_nvml(Nvml([Device("GPU-a"), DIVIDED])).cards
    assert [(card.number, card.uuid, card.is_part, card.is_divided) for card in cards] == [
        ("0", "GPU-a", False, False), ("1", "GPU-b", False, True), ("1", "MIG-1", True, False),
        ("1", "MIG-2", True, False),
    ]
    assert cards[3] == DriverCard("1", "MIG-2", 19_968 * MIB, 9_000 * MIB, 10_968 * MIB, is_part=True)
    assert str(cards[3]) == "MIG-2 of card 1"


@pytest.mark.parametrize("nvml", [Nvml([Device("GPU-a")], old=True), Nvml([Device("GPU-a")], old_driver=True)],
                         ids=["the binding of Ray 2.49", "an early driver"])
def test_the_drivers_own_memory_counts_as_used_if_it_is_not_reported_separately(nvml: Nvml) -> None:
    [card] = query_nvml(nvml).cards
    assert (card.used, card.free) == (600 * MIB, (81_559 - 600) * MIB)


def test_ids_of_cards_are_text_also_if_the_binding_returns_bytes() -> None:
    """A replica writes them into its repr, as JSON."""
    cards = query_nvml(Nvml([Device("GPU-a"), DIVIDED], old=True)).cards
    assert [card.uuid for card in cards] == ["GPU-a", "GPU-b", "MIG-1", "MIG-2"]
    assert query_nvml(Nvml([Device("GPU-spark", None)], old=True)).cards[0].uuid == "GPU-spark"


def test_a_card_without_a_memory_report_is_left_out() -> None:
    assert [card.uuid for card in query_nvml(Nvml([Device("GPU-a", None), Device("GPU-b")])).cards] == ["GPU-b"]


def test_the_only_card_has_the_hosts_memory_if_the_driver_supports_no_report_of_it() -> None:
    [card] = query_nvml(Nvml([Device("GPU-spark", None)])).cards
    assert card.is_unified
    assert card.total > card.used > 0
    assert card.free == card.total - card.used


@pytest.mark.parametrize(("call", "reason"), [("open", "GPU is lost"), ("memory", "Unknown Error")])
@pytest.mark.parametrize("failing", [0, 3, 7])
def test_a_card_that_cannot_be_read_is_lost_and_the_others_are_reported(failing: int, call: str, reason: str) -> None:
    devices = [Device(f"GPU-{index}") for index in range(8)]
    devices[failing].fails[call] = reason
    answer = query_nvml(Nvml(devices))
    assert [card.number for card in answer.cards] == [str(index) for index in range(8) if index != failing]
    assert (answer.trouble, answer.lost) == (None, {str(failing): reason})


def test_the_only_card_of_a_host_may_be_lost() -> None:
    only = Nvml([Device("GPU-a", fails={"open": "GPU is lost"})])
    assert query_nvml(only) == CardReport([], None, {"0": "GPU is lost"})


@pytest.mark.parametrize("call", ["uuid", "processes", "slots"])
def test_a_call_that_fails_for_one_card_costs_only_what_it_would_have_told(call: str) -> None:
    devices = [Device("GPU-a", pids=(7,)), Device("GPU-b", pids=(8,), parts=[Device("MIG-1", 9_856)])]
    before = query_nvml(Nvml(devices)).cards
    devices[1].fails[call] = "Unknown Error"
    after = query_nvml(Nvml(devices))
    without = {"uuid": before[1]._replace(uuid=""), "processes": before[1]._replace(pids=()), "slots": before[1]}[call]
    assert after == CardReport([before[0], without, before[2]])


def test_mig_devices_are_reported_without_their_card() -> None:
    divided = Device("GPU-b", parts=[Device("MIG-1", 9_856), Device("MIG-2", 9_856, fails={"memory": "Unknown Error"})],
                     fails={"memory": "Unknown Error"})
    answer = query_nvml(Nvml([Device("GPU-a"), divided]))
    assert [card.uuid for card in answer.cards] == ["GPU-a", "MIG-1"]
    assert answer.lost == {}


@pytest.mark.parametrize(("device", "fault"), [
    (Device("GPU-a", uncorrected=0, remapped=(3, 1, 0, 0)), ""),
    (Device("GPU-a", uncorrected=1), "1 uncorrected memory error since its last reset"),
    (Device("GPU-a", uncorrected=2, remapped=(0, 1, 1, 0)),
     f"2 uncorrected memory errors since its last reset, {WAITS}"),
    (Device("GPU-a", pages_pending=True), WAITS),
    (Device("GPU-a", uncorrected=0, remapped=(0, 9, 0, 1)), "memory that could not be replaced"),
])
def test_faults_of_a_cards_memory_are_reported(device: Device, fault: str) -> None:
    assert [card.fault for card in query_nvml(Nvml([device])).cards] == [fault]


def test_a_display_server_uses_a_card_as_well() -> None:
    assert query_nvml(Nvml([Device("GPU-a", pids=(9,), drawing=(3, 9))])).cards[0].pids == (3, 9)


def test_the_processes_of_a_card_are_known_if_the_driver_lists_them() -> None:
    devices = [Device("GPU-a", pids=(9, 7, 9))]
    assert query_nvml(Nvml(devices)).cards[0].pids == (7, 9)
    assert query_nvml(Nvml(devices, old_driver=True)).cards[0].pids == ()


def test_nvml_is_preferred_to_nvidia_smi(use: Use, nvidia_smi: Install, tmp_path: Path) -> None:
    use(Nvml([Device("GPU-a")]))
    assert [card.uuid for card in query_driver(nvidia_smi(f"touch {tmp_path}/asked")).cards] == ["GPU-a"]
    assert not (tmp_path / "asked").exists()


def test_nvidia_smi_is_run_if_nvml_is_missing_or_fails(use: Use, nvidia_smi: Install) -> None:
    env = nvidia_smi(listing("0, GPU-aa, 23034, 5, 22500", "1, GPU-bb, 81559, 0, 81000"))
    reason = CardReport([DriverCard("0", "GPU-aa", 23_034 * MIB, 5 * MIB, 22_500 * MIB),
                         DriverCard("1", "GPU-bb", 81_559 * MIB, 0, 81_000 * MIB)])
    for nvml in (None, Nvml(trouble="Driver/library version mismatch")):
        use(nvml)
        assert query_driver(env) == reason


def test_without_a_driver_the_reason_is_reported(
    use: Use, nvidia_smi: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(None)
    monkeypatch.setattr(driver, "DEVICES", ("/dev/null",))
    assert query_driver({"PATH": str(tmp_path)}) == CardReport([], "no NVIDIA driver was found on this node")
    use(Nvml(trouble="Driver/library version mismatch"))
    assert query_driver(nvidia_smi("exit 9")) == CardReport([], "NVML: Driver/library version mismatch")


def test_a_host_without_any_card_has_nothing_to_check(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(None)
    monkeypatch.setattr(driver, "DEVICES", (str(tmp_path / "nvidia*"),))
    assert query_driver({"PATH": str(tmp_path)}) == CardReport([])


def test_a_driver_that_reports_no_card_does_not_prove_that_there_is_none(use: Use) -> None:
    use(Nvml())
    assert query_driver({}).trouble == "the NVIDIA driver reports no card"


def test_a_driver_that_hangs_does_not_hang_the_start(
    use: Use, monkeypatch: pytest.MonkeyPatch, nvidia_smi: Install, tmp_path: Path
) -> None:
    over = threading.Event()

    hanging = Nvml(trouble="late")
    monkeypatch.setattr(driver, "query_nvml", lambda nvml, *found: [over.wait(60), query_nvml(nvml, *found)][1])
    use(hanging)
    monkeypatch.setattr(driver, "TIMEOUT_S", 0.1)
    answer = query_driver(nvidia_smi(f"touch {tmp_path}/asked"))
    over.set()
    assert answer == CardReport([], "the NVIDIA driver did not answer within 0.1 s")
    assert not (tmp_path / "asked").exists(), "nvidia-smi would hang, too"


def test_a_driver_that_hangs_at_one_card_has_told_of_those_before(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    nvml = Nvml([Device("GPU-a"), Device("GPU-b"), Device("GPU-c")])
    opened = nvml.nvmlDeviceGetHandleByIndex
    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByIndex",
                        lambda index: [index == 1 and over.wait(60), opened(index)][1])
    use(nvml)
    limit_s, answer = 0.1, CardReport([])
    while set(answer.lost) != {"1"} and limit_s < 60:  # a busy machine may not even begin within the limit
        monkeypatch.setattr(driver, "TIMEOUT_S", limit_s := 2 * limit_s)
        answer = query_driver({})
    over.set()
    assert [card.uuid for card in answer.cards] == ["GPU-a"]
    assert answer.trouble == f"the NVIDIA driver did not answer within {limit_s:g} s"
    assert answer.lost == {"1": "the driver does not answer"}


def test_the_binding_is_not_imported_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libno-such-library.so.1")
    assert driver.load_nvml() is None


def test_the_binding_is_the_one_that_ray_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", None)  # the program itself
    nvml = driver.load_nvml()
    called = {name for name in vars(Nvml) if name.startswith("nvml")}
    assert called <= set(dir(nvml))
    assert issubclass(nvml.NVMLError, Exception)


def test_nvidia_smi_runs_with_the_nodes_environment(nvidia_smi: Install, tmp_path: Path) -> None:
    env = nvidia_smi(f'echo "$CUDA_VISIBLE_DEVICES|$*" > {tmp_path}/asked')
    query_nvidia_smi({**env, "CUDA_VISIBLE_DEVICES": "7"})
    visible, _, query = (tmp_path / "asked").read_text().partition("|")
    assert visible == "7"
    assert "index,uuid,memory.total,memory.used,memory.free" in query
    assert "nounits" in query


@pytest.mark.parametrize("row", [
    "0, GPU-aa, [N/A], [N/A], [N/A]", "0, GPU-aa, [Insufficient Permissions], 5, 1", "", "no devices",
])
def test_a_row_without_memory_is_left_out(nvidia_smi: Install, row: str) -> None:
    answer = query_nvidia_smi(nvidia_smi(listing(row, "1, GPU-bb, 100, 0, 100")))
    assert answer == CardReport([DriverCard("1", "GPU-bb", 100 * MIB, 0, 100 * MIB)])


@pytest.mark.parametrize("cell", ["[GPU is lost]", "ERR!", "[Unknown Error]", "[GPU requires reset]"])
def test_a_row_with_an_error_is_a_lost_card(nvidia_smi: Install, cell: str) -> None:
    answer = query_nvidia_smi(nvidia_smi(listing(f"0, {cell}, {cell}, {cell}, {cell}", "1, GPU-bb, 100, 0, 100")))
    assert answer == CardReport([DriverCard("1", "GPU-bb", 100 * MIB, 0, 100 * MIB)], None, {"0": cell.strip("[]")})


def test_the_rows_of_a_failing_nvidia_smi_count(nvidia_smi: Install) -> None:
    body = (listing("1, GPU-bb, 100, 0, 100") + "\necho 'Unable to determine the device handle for GPU0: 0000:07:00.0: "
            "GPU is lost' >&2\nexit 15")
    answer = query_nvidia_smi(nvidia_smi(body))
    assert answer is not None
    assert [card.uuid for card in answer.cards] == ["GPU-bb"]
    assert answer.trouble == ("nvidia-smi: Unable to determine the device handle for GPU0: 0000:07:00.0: GPU is lost")


def test_a_failing_nvidia_smi_gives_no_report(nvidia_smi: Install) -> None:
    assert query_nvidia_smi(nvidia_smi("echo 'could not communicate with the driver'; exit 9")) is None
