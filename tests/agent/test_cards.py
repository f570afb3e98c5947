"""A member's look at its cards, with an `nvidia-smi` that a test writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.agent import cards
from fleetctl.agent.cards import MIB, Card, granted, objection, read_cards, uuids, wait_for_clean_cards

GIB = 1 << 30
Driver = Callable[[str], dict[str, str]]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Put an `nvidia-smi` on the PATH of the environment that is returned; it runs `body` of a shell script."""

    def install(body: str) -> dict[str, str]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"}

    return install


def listing(*rows: str) -> str:
    return "cat <<'EOF'\n" + "\n".join(rows) + "\nEOF"


def card(number: int, used: int = 0, total: int = 80 * GIB) -> Card:
    return Card(str(number), f"GPU-{number}", total, used)


def test_cards_are_read_in_bytes(driver: Driver) -> None:
    env = driver(listing("0, GPU-aa, 23034, 5", "1, GPU-bb, 81559, 0"))
    assert read_cards(env) == [Card("0", "GPU-aa", 23034 * MIB, 5 * MIB), Card("1", "GPU-bb", 81559 * MIB, 0)]


def test_the_driver_is_asked_with_the_nodes_environment(driver: Driver, tmp_path: Path) -> None:
    env = driver(f'echo "$CUDA_VISIBLE_DEVICES|$*" > {tmp_path}/asked')
    read_cards({**env, "CUDA_VISIBLE_DEVICES": "7"})
    visible, _, query = (tmp_path / "asked").read_text().partition("|")
    assert visible == "7"
    assert "index,uuid,memory.total,memory.used" in query
    assert "nounits" in query


@pytest.mark.parametrize("row", [
    "0, GPU-aa, [N/A], [N/A]", "0, GPU-aa, [Insufficient Permissions], 5", "", "no devices",
])
def test_a_card_whose_memory_is_not_told_is_left_out(driver: Driver, row: str) -> None:
    assert read_cards(driver(listing(row, "1, GPU-bb, 100, 0"))) == [Card("1", "GPU-bb", 100 * MIB, 0)]


def test_without_a_working_driver_nothing_is_known_and_nothing_refused(driver: Driver, tmp_path: Path) -> None:
    missing = {"PATH": str(tmp_path)}
    assert read_cards(missing) is None
    assert read_cards(driver("echo 'has failed because it could not communicate with the driver'; exit 9")) is None
    assert wait_for_clean_cards("0", 10_000, 80 * GIB, driver("exit 9")) is None


def test_granted_cards_are_picked_by_index_or_uuid_in_their_order() -> None:
    there = [card(0), card(1), card(10)]
    assert granted(there, "10,0") == [card(10), card(0)]
    assert granted(there, "GPU-1") == [card(1)]
    assert granted(there, "GPU-1, 0") == [card(1), card(0)]
    assert granted(there, "") == []
    assert granted(there, "7,MIG-x") == []


@pytest.mark.parametrize(("share", "vram", "used", "fine"), [
    (10_000, 0, 0, True),
    (10_000, 0, GIB, True),
    (10_000, 0, 80 * GIB // 50, True),
    (10_000, 0, 80 * GIB // 50 + 1, False),
    (20_000, 0, 4 * GIB, False),
    (10_000, 80 * GIB, 0, True),
    (10_000, 80 * GIB, 1, False),
    (2_500, 0, 60 * GIB, True),
    (2_500, 20 * GIB, 60 * GIB, True),
    (2_500, 20 * GIB, 60 * GIB + 1, False),
])
def test_a_whole_card_must_be_clean_and_a_shared_one_have_room(share: int, vram: int, used: int, fine: bool) -> None:
    assert (objection([card(3, used)], share, vram) is None) is fine


def test_on_a_small_card_one_gibibyte_of_use_is_still_clean() -> None:
    assert objection([card(0, GIB, 16 * GIB)], 10_000, 0) is None
    assert objection([card(0, GIB + 1, 16 * GIB)], 10_000, 0) is not None


def test_an_objection_names_the_card_and_the_arithmetic() -> None:
    assert objection([card(0), card(5, 3 * GIB)], 20_000, 0) == (
        "card 5 was granted whole but 3072Mi of it are in use by somebody else")
    assert objection([card(5, 70 * GIB)], 2_500, 20 * GIB) == "card 5 has 10240Mi of 81920Mi free, 20480Mi are needed"


class Clock(SimpleNamespace):
    """Time that passes only by sleeping; `then` is called after each sleep."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(now=0.0, then=then)

    def monotonic(self) -> float:
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()


def test_a_card_that_is_still_giving_memory_back_is_waited_for(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    env = driver(listing("0, GPU-aa, 81920, 70000"))
    clock = Clock(then=lambda: driver(listing("0, GPU-aa, 81920, 3")))
    monkeypatch.setattr(cards, "time", clock)
    assert wait_for_clean_cards("0", 10_000, 0, env) is None
    assert clock.now > 0


def test_a_card_that_stays_taken_is_objected_to(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    env, clock = driver(listing("0, GPU-aa, 81920, 70000", "1, GPU-bb, 81920, 0")), Clock()
    monkeypatch.setattr(cards, "time", clock)
    assert "card 0 was granted whole" in (wait_for_clean_cards("0,1", 20_000, 0, env) or "")
    assert wait_for_clean_cards("1", 10_000, 0, env) is None, "somebody else's card is no matter"
    assert cards.SETTLE_S <= clock.now <= cards.SETTLE_S + 2


def test_a_member_without_a_card_asks_nobody(driver: Driver, tmp_path: Path) -> None:
    env = driver(f"touch {tmp_path}/asked")
    assert wait_for_clean_cards("", 0, 0, env) is None
    assert uuids("", env) == []
    assert not (tmp_path / "asked").exists()


def test_uuids_are_told_as_far_as_the_driver_tells_them(driver: Driver) -> None:
    env = driver(listing("0, GPU-aa, 100, 0", "1, GPU-bb, 100, 0"))
    assert uuids("1,0", env) == ["GPU-bb", "GPU-aa"]
    assert uuids("0", driver("exit 9")) == []
