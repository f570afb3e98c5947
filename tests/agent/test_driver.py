"""The driver's report of a host's cards: through NVML, `nvidia-smi`, or none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_stand_in import MIB, Device, Nvml

from fleetctl.agent import driver
from fleetctl.agent.driver import Answer, Card, query_driver, query_nvidia_smi, query_nvml

Install = Callable[[str], dict[str, str]]
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
    assert query_nvml(nvml) == Answer([
        Card("0", "GPU-a", 81_559 * MIB, 5 * MIB, 80_954 * MIB),
        Card("1", "GPU-cannot-be-divided", 23_034 * MIB, 0, 23_034 * MIB),
    ])
    assert nvml.opened == 0


def test_mig_devices_have_their_own_memory_and_the_number_of_their_card() -> None:
    cards = query_nvml(Nvml([Device("GPU-a"), DIVIDED])).cards
    assert [(card.number, card.uuid, card.is_part, card.is_divided) for card in cards] == [
        ("0", "GPU-a", False, False), ("1", "GPU-b", False, True), ("1", "MIG-1", True, False),
        ("1", "MIG-2", True, False),
    ]
    assert cards[3] == Card("1", "MIG-2", 19_968 * MIB, 9_000 * MIB, 10_968 * MIB, is_part=True)
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
    assert query_nvml(Nvml([Device("GPU-lost", -1)])).trouble == "the NVIDIA driver reports no card"


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
    reason = Answer([Card("0", "GPU-aa", 23_034 * MIB, 5 * MIB, 22_500 * MIB),
                     Card("1", "GPU-bb", 81_559 * MIB, 0, 81_000 * MIB)])
    for nvml in (None, Nvml(trouble="Driver/library version mismatch")):
        use(nvml)
        assert query_driver(env) == reason


def test_without_a_driver_the_reason_is_reported(
    use: Use, nvidia_smi: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(None)
    monkeypatch.setattr(driver, "DEVICES", ("/dev/null",))
    assert query_driver({"PATH": str(tmp_path)}) == Answer([], "no NVIDIA driver was found on this node")
    use(Nvml(trouble="Driver/library version mismatch"))
    assert query_driver(nvidia_smi("exit 9")) == Answer([], "NVML: Driver/library version mismatch")


def test_a_host_without_any_card_has_nothing_to_check(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(None)
    monkeypatch.setattr(driver, "DEVICES", (str(tmp_path / "nvidia*"),))
    assert query_driver({"PATH": str(tmp_path)}) == Answer([])


def test_a_driver_that_reports_no_card_does_not_prove_that_there_is_none(use: Use) -> None:
    use(Nvml())
    assert query_driver({}).trouble == "the NVIDIA driver reports no card"


def test_a_driver_that_hangs_does_not_hang_the_start(
    use: Use, monkeypatch: pytest.MonkeyPatch, nvidia_smi: Install, tmp_path: Path
) -> None:
    over = threading.Event()

    hanging = Nvml(trouble="late")
    monkeypatch.setattr(driver, "query_nvml", lambda nvml: [over.wait(60), query_nvml(nvml)][1])
    use(hanging)
    monkeypatch.setattr(driver, "TIMEOUT_S", 0.1)
    answer = query_driver(nvidia_smi(f"touch {tmp_path}/asked"))
    over.set()
    assert answer == Answer([], "the NVIDIA driver did not answer within 0.1 s")
    assert not (tmp_path / "asked").exists(), "nvidia-smi would hang, too"


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
    assert answer == Answer([Card("1", "GPU-bb", 100 * MIB, 0, 100 * MIB)])


def test_a_failing_nvidia_smi_gives_no_report(nvidia_smi: Install) -> None:
    assert query_nvidia_smi(nvidia_smi("echo 'could not communicate with the driver'; exit 9")) is None
