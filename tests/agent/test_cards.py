"""A member's check of its cards: which cards were granted, whether they are usable, which could not be checked."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.agent import cards, processes
from fleetctl.agent.cards import (
    CardCheck,
    card_numbers,
    card_uuids,
    check_granted,
    find,
    names_for_engine,
    objection,
    wait_for_clean_cards,
)
from fleetctl.agent.driver import CardReport, DriverCard
from fleetctl.agent.messages import Resident

GIB = 1 << 30


def card(number: int, used: int = 0, total: int = 80 * GIB) -> DriverCard:
    return DriverCard(str(number), f"GPU-{number}{number}{number}", total, used, total - used)


HOST = [
    card(0), card(1), card(10), DriverCard("2", "GPU-222", 80 * GIB, 9 * GIB, 71 * GIB, is_divided=True),
    DriverCard("2", "MIG-aaa", 10 * GIB, 0, 10 * GIB, is_part=True),
    DriverCard("2", "MIG-aab", 20 * GIB, 9 * GIB, 11 * GIB, is_part=True),
]


@pytest.mark.parametrize(("granted", "uuid"), [
    ("0", "GPU-000"), ("10", "GPU-101010"), ("GPU-111", "GPU-111"), ("MIG-aaa", "MIG-aaa"), ("2", "GPU-222"),
    ("GPU-0", "GPU-000"), ("GPU-10", "GPU-101010"), ("MIG-aab", "MIG-aab"),
])
def test_a_card_is_found_by_number_uuid_or_the_beginning_of_one(granted: str, uuid: str) -> None:
    found = find(HOST, granted)
    assert found is not None
    assert found.uuid == uuid


@pytest.mark.parametrize("granted", ["7", "GPU-1", "GPU-", "GPU-9", "MIG-aa", "G", "", "MIG-GPU-222/1/0", "NoDevFiles"])
def test_an_id_that_matches_no_card_or_several_finds_none(granted: str) -> None:
    assert find(HOST, granted) is None


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
def test_a_whole_card_must_be_clean_and_a_shared_card_must_have_room(
    share: int, vram: int, used: int, fine: bool
) -> None:
    assert (objection([card(3, used)], share, vram) is None) is fine


def test_on_a_small_card_one_gibibyte_of_use_is_still_clean() -> None:
    assert objection([card(0, GIB, 16 * GIB)], 10_000, 0) is None
    assert objection([card(0, GIB + 1, 16 * GIB)], 10_000, 0) is not None


def test_free_memory_is_the_drivers_figure_because_the_driver_reserves_some() -> None:
    kept = DriverCard("0", "GPU-0", 80 * GIB, 0, 79 * GIB)
    assert objection([kept], 10_000, 79 * GIB) is None
    assert objection([kept], 10_000, 80 * GIB) == "card 0 has 80896Mi of 81920Mi free, 81920Mi needed"


def test_an_objection_names_the_card_and_the_arithmetic() -> None:
    assert objection([card(0), card(5, 3 * GIB)], 20_000, 0) == (
        "card 5 was granted whole, but 3072Mi of it are in use by another process")
    assert objection([card(5, 70 * GIB)], 2_500, 20 * GIB) == "card 5 has 10240Mi of 81920Mi free, 20480Mi needed"


def test_the_process_that_uses_a_card_is_named_with_user_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"FLEETCTL_MODEL": "org/m", "FLEETCTL_REPLICA_ID": "3"}
    with subprocess.Popen(["sh", "-c", "echo up; read _"], env=environ, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as engine:
        assert engine.stdout.readline() == b"up\n", "before that, /proc may show no environment"
        used = card(5, 3 * GIB)._replace(pids=(engine.pid, 1 << 22))
        assert objection([used], 10_000, 0) is not None
        monkeypatch.setattr(processes, "FIRST_NAMESPACE", str(Path("/proc/self/ns/pid").readlink()))
        text = objection([used], 10_000, 0)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert re.fullmatch(
        rf"card 5 was granted whole, but 3072Mi of it are in use by process {engine.pid} \(sh, user {user}, since "
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ, an engine of org/m/3\), process {1 << 22}", str(text))


def test_in_a_container_a_number_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver counts processes as the host does: process 1 is a different process there."""
    monkeypatch.setattr(processes, "FIRST_NAMESPACE", "another")
    text = objection([card(5, 3 * GIB)._replace(pids=(1, 2, 3, 4))], 10_000, 0)
    assert str(text).endswith("in use by process 1, process 2, process 3 and 1 more")


def test_use_by_the_host_is_no_objection_if_the_card_shares_the_hosts_memory() -> None:
    unified = DriverCard("0", "GPU-spark", 128 * GIB, 28 * GIB, 100 * GIB, is_unified=True)
    assert objection([unified], 10_000, 100 * GIB) is None
    assert objection([unified], 10_000, 101 * GIB) is not None


def test_a_cooling_card_is_refused_immediately_even_if_it_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    host = CardReport([card(0), card(1)])
    check = check_granted(host, ["1"], 10_000, 0, ["GPU-111"])
    assert (check.code, check.objection) == (
        "CARD_COOLING", "card 1 (GPU-111) is cooling: several models failed on it recently")
    assert check_granted(host, ["0"], 10_000, 0, ["GPU-111"]).objection is None
    monkeypatch.setattr(cards, "query_driver", lambda _: host)
    monkeypatch.setattr(cards.time, "sleep", lambda _: pytest.fail("no waiting makes it good"))
    assert wait_for_clean_cards(["1"], 10_000, 0, {}, cooling=["GPU-111"]).code == "CARD_COOLING"
    unknown = CardCheck([None], None, "no driver")
    assert check_granted(CardReport([], "no driver"), ["1"], 10_000, 0, ["GPU-111"]) == unknown


LOST = CardReport([card(1), card(5, 70 * GIB)], None, {"0": "GPU is lost"})


@pytest.mark.parametrize(("granted", "code", "text"), [
    ("0", "CARD_LOST", "card 0 is lost: the driver counts it and cannot open it (GPU is lost)"),
    ("GPU-of-0", "CARD_LOST", "GPU-of-0 is lost: the driver counts it and cannot open it (card 0: GPU is lost)"),
    ("5", "CARD_IN_USE", "card 5 was granted whole, but 71680Mi of it are in use by another process"),
    ("1", "CARD_COOLING", "card 1 (GPU-111) is cooling: several models failed on it recently"),
])
def test_one_lost_card_is_refused_and_the_others_are_checked_as_ever(granted: str, code: str, text: str) -> None:
    check = check_granted(LOST, [granted], 10_000, 0, ["GPU-111"])
    assert (check.code, check.objection) == (code, text)
    assert list(check.failed) == ([granted] if code == "CARD_LOST" else [])


def test_a_lost_card_is_not_awaited(driver: Driver) -> None:
    clock = driver([LOST])
    assert wait_for_clean_cards(["0"], 10_000, 0, {}).code == "CARD_LOST"
    assert clock.now == 0


def test_if_the_driver_does_not_tell_all_a_uuid_that_it_has_not_told_is_unchecked() -> None:
    check = check_granted(LOST._replace(trouble="the NVIDIA driver did not answer"), ["GPU-x"], 10_000, 0)
    assert (check.objection, check.unchecked) == (None, "the NVIDIA driver did not answer")


def test_an_engine_gets_uuids_only_if_not_every_card_of_its_host_can_be_opened() -> None:
    """CUDA may count only the cards that it can open; numbers would then mean others."""
    assert names_for_engine(["1", "9"], check_granted(LOST, ["1", "9"], 20_000, 0)) == ["GPU-111", "9"]
    assert names_for_engine(["1"], check_granted(CardReport(HOST), ["1"], 10_000, 0)) == ["1"]
    assert names_for_engine(["1"], CardCheck()) == ["1"]


def test_a_card_with_faulty_memory_is_refused_but_not_under_a_replica_that_restarts() -> None:
    faulty = CardReport([card(0), card(1)._replace(fault="3 uncorrected memory errors since its last reset")])
    check = check_granted(faulty, ["1"], 10_000, 0)
    assert (check.code, check.objection, list(check.failed)) == (
        "CARD_FAULTY", "card 1 (GPU-111) has 3 uncorrected memory errors since its last reset", ["1", "GPU-111"])
    assert check.is_final
    assert check_granted(faulty, ["0"], 10_000, 0).objection is None
    assert check_granted(faulty, ["1"], 10_000, 0, restarted=True).objection is None


@pytest.mark.parametrize(("used", "residents", "fine"), [
    (2 * GIB, [], False),
    (2 * GIB, [Resident(GIB)], True),
    (4 * GIB, [Resident(GIB), Resident(2 * GIB)], True),
    (4 * GIB + 1, [Resident(GIB), Resident(2 * GIB)], False),
])
def test_the_memory_of_residents_does_not_make_a_whole_card_dirty(
    used: int, residents: list[Resident], fine: bool
) -> None:
    assert (objection([card(0, used, 24 * GIB)], 10_000, 0, residents) is None) is fine


def test_a_resident_with_a_name_is_known_by_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sh", "-c", "echo up; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline() == b"up\n", "before that, /proc may show the command of this process"
        used = card(5, 3 * GIB)._replace(pids=(daemon.pid,))
        monkeypatch.setattr(processes, "FIRST_NAMESPACE", str(Path("/proc/self/ns/pid").readlink()))
        texts = {name: objection([used], 10_000, 0, [Resident(2 * GIB, name)])
                 for name in ("sh", "-c", "Xorg")}
        monkeypatch.setattr(processes, "FIRST_NAMESPACE", "another")
        in_a_container = objection([used], 10_000, 0, [Resident(2 * GIB, "Xorg")])
        daemon.kill()
    assert (texts["sh"], texts["-c"], in_a_container) == (None, None, None), "a word of its command counts"
    assert "card 5 was granted whole, but 3072Mi of it are in use by process" in str(texts["Xorg"])


def test_what_residents_use_is_told_with_the_objection() -> None:
    assert objection([card(5, 9 * GIB)], 10_000, 0, [Resident(2 * GIB)]) == (
        "card 5 was granted whole, but 9216Mi of it are in use by another process, 2048Mi belong to its residents")


def test_a_mig_device_is_judged_by_its_own_memory() -> None:
    assert check_granted(CardReport(HOST), ["MIG-aaa"], 10_000, 10 * GIB) == CardCheck([HOST[4]])
    assert check_granted(CardReport(HOST), ["MIG-aab"], 10_000, 0).objection == (
        "MIG-aab of card 2 was granted whole, but 9216Mi of it are in use by another process")


@pytest.mark.parametrize(("answer", "granted", "unchecked"), [
    (CardReport([], "no NVIDIA driver was found on this node"), ["0"], "no NVIDIA driver was found on this node"),
    (CardReport(HOST), ["0", "GPU-1"], "the NVIDIA driver reports no memory for GPU-1"),
    (CardReport(HOST[:3]), ["MIG-aaa", "7"], "the NVIDIA driver reports no memory for MIG-aaa, 7"),
    (CardReport(HOST), ["2"], "card 2 is divided (MIG), but was granted by its number"),
    (CardReport(HOST), ["0", "MIG-aaa"], None),
    (CardReport([]), ["0"], None),
])
def test_an_unchecked_card_is_reported_and_not_refused(
    answer: CardReport, granted: list[str], unchecked: str | None
) -> None:
    check = check_granted(answer, granted, 10_000, 0)
    assert (check.unchecked, check.objection) == (unchecked, None)


def test_cards_are_checked_even_if_another_card_cannot_be() -> None:
    assert check_granted(CardReport([card(0, 70 * GIB)]), ["MIG-x", "0"], 20_000, 0).objection is not None


def test_cards_are_reported_with_the_drivers_numbers_and_uuids_if_known() -> None:
    granted = ["GPU-1", "MIG-aab", "MIG-aaa", "7", "MIG-x", "10"]
    check = check_granted(CardReport([*HOST[:1], *HOST[2:]]), granted, 10_000, 0)
    assert card_numbers(granted, check) == [10, 2, 7]
    assert card_uuids(check) == ["GPU-101010", "MIG-aab", "MIG-aaa", "GPU-101010"]
    assert card_numbers(["3", "GPU-x"], CardCheck()) == [3]


class Clock(SimpleNamespace):
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        super().__init__(now=0.0)

    def monotonic(self) -> float:
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


Driver = Callable[[list[CardReport]], Clock]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Let the driver give these answers in order, the last one repeatedly; return the clock."""

    def answering(answers: list[CardReport]) -> Clock:
        clock = Clock()
        monkeypatch.setattr(cards, "time", clock)
        monkeypatch.setattr(cards, "query_driver", lambda env: answers.pop(0) if len(answers) > 1 else answers[0])
        return clock

    return answering


def test_a_card_that_is_still_freeing_memory_is_awaited(driver: Driver) -> None:
    clock = driver([CardReport([card(0, 70 * GIB)]), CardReport([card(0, 1)])])
    assert wait_for_clean_cards(["0"], 10_000, 0, {}) == CardCheck([card(0, 1)])
    assert clock.now > 0


def test_a_card_that_stays_in_use_is_refused(driver: Driver) -> None:
    clock = driver([CardReport([card(0, 70 * GIB), card(1)])])
    assert "card 0 was granted whole" in (wait_for_clean_cards(["0", "1"], 20_000, 0, {}).objection or "")
    assert wait_for_clean_cards(["1"], 10_000, 0, {}).objection is None, "use of another card does not matter"
    assert cards.CLEAN_S <= clock.now <= cards.CLEAN_S + 2


def test_memory_counts_as_free_when_two_samples_in_a_row_are_equal(driver: Driver) -> None:
    """An evicted engine's memory is freed gradually, even when the rest is small enough to count as clean."""
    falling = [CardReport([card(0, used)]) for used in (70 * GIB, GIB, GIB // 2, 5, 5, 7)]
    clock = driver(falling)
    assert wait_for_clean_cards(["0"], 10_000, 0, {}, stable=True) == CardCheck([card(0, 5)])
    assert falling == [CardReport([card(0, 7)])]
    assert clock.now >= 3 * cards.SAMPLE_S


def test_residents_that_stay_on_a_card_do_not_delay_an_eviction(driver: Driver) -> None:
    clock = driver([CardReport([card(0, 5 * GIB)])])
    check = wait_for_clean_cards(["0"], 10_000, 0, {}, residents=[Resident(4 * GIB)], stable=True)
    assert (check.objection, clock.now) == (None, cards.SAMPLE_S)


def test_without_a_reported_card_memory_is_stable_immediately(driver: Driver) -> None:
    for answer in (CardReport([]), CardReport([], "no NVIDIA driver was found on this node")):
        clock = driver([answer])
        wait_for_clean_cards(["0"], 10_000, 0, {}, stable=True)
        assert clock.now == 0


def test_a_card_that_cannot_be_checked_is_not_awaited(driver: Driver) -> None:
    clock = driver([CardReport([], "no NVIDIA driver was found on this node")])
    assert wait_for_clean_cards(["0"], 10_000, 0, {}).unchecked == "no NVIDIA driver was found on this node"
    assert clock.now == 0


def test_a_member_without_a_card_does_not_query_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cards, "query_driver")
    assert wait_for_clean_cards([], 0, 0, {}) == CardCheck()


