"""The lock of a fleet: one holder at a time, released or left by a job that died, and never given twice."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import lock as lock_module
from fleetctl.agent.lock import HeldLock, Interrupted, LockBusy, take_lock
from fleetctl.agent.run_messages import Holder, LeftLock


class Jobs(set[str]):
    """The Ray jobs whose driver is alive."""


@pytest.fixture
def jobs() -> Jobs:
    return Jobs({"a", "b", "c"})


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> Keys:
    monkeypatch.setattr(lock_module, "job_is_alive", jobs.__contains__)
    monkeypatch.setattr(lock_module, "POLL_S", 0.001)
    return Keys().install(monkeypatch, lock_module)


class Clock:
    """A clock that only sleeping advances, and what it was asked to sleep."""

    def __init__(self) -> None:
        self.now, self.rests = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, keys: Keys) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lock_module, "time", clock)
    monkeypatch.setattr(lock_module, "POLL_S", 0.5)
    return clock


def take(job: str, fleet: str = "lab", timeout_s: float = 0.0, **more: Any) -> HeldLock:
    waiting, stopped = more.get("waiting", lambda _: None), more.get("stopped", lambda: False)
    return take_lock(fleet, Holder(f"job-{job}", driver=job), timeout_s, waiting, stopped)


def test_a_second_job_learns_the_holder(keys: Keys) -> None:
    held = take("a")
    assert held.hold()
    with pytest.raises(LockBusy) as caught:
        take("b")
    assert caught.value.holder.job == "job-a"
    assert held.hold()


def numbers(keys: Keys, fleet: str = "lab") -> list[int]:
    return sorted(int(key.rpartition(b":")[2]) for _, key in keys.table if key.startswith(f"lock:{fleet}:".encode()))


def write(keys: Keys, number: int, **holder: Any) -> None:
    """Write an entry as another job does, before it deletes older ones."""
    keys.put(b"lock:lab:%d" % number, json.dumps(holder).encode(), namespace=lock_module.KV_NAMESPACE)


def test_looking_whether_the_lock_is_held_writes_nothing(keys: Keys) -> None:
    held = take("a")
    assert (held.hold(), held.hold(), numbers(keys)) == (True, True, [0])
    held.release()
    assert (held.hold(), held.hold(), held.released, numbers(keys)) == (True, True, False, [1])


def test_a_higher_number_ends_a_lock_even_before_the_lower_is_deleted(keys: Keys) -> None:
    held = take("a")
    write(keys, 1, driver="b")
    assert not held.hold()
    with pytest.raises(LockBusy) as caught:
        take("c")
    assert caught.value.holder.driver == "b"


def test_without_any_entry_nobody_holds_the_lock(keys: Keys) -> None:
    first = take("a")
    first.release()
    second = take("b")
    keys.table.clear()
    assert (first.hold(), second.hold()) == (False, False)


def test_a_job_that_loses_the_race_for_its_released_lock_never_holds_it(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, put = take("a"), keys.put
    first.release()

    def late(key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        monkeypatch.setattr(lock_module, "_internal_kv_put", put)
        take("b")
        return put(key, value, overwrite, namespace=namespace)

    monkeypatch.setattr(lock_module, "_internal_kv_put", late)
    assert (first.hold(), first.hold()) == (False, False)
    with pytest.raises(LockBusy) as caught:
        take("c")
    assert caught.value.holder.job == "job-b"


def test_of_two_jobs_that_write_the_same_number_the_second_waits(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    put = keys.put

    def late(key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        monkeypatch.setattr(lock_module, "_internal_kv_put", put)
        take("b")
        return put(key, value, overwrite, namespace=namespace)

    monkeypatch.setattr(lock_module, "_internal_kv_put", late)
    with pytest.raises(LockBusy) as caught:
        take("a")
    assert (caught.value.holder.job, numbers(keys)) == ("job-b", [0])


def test_a_released_entry_still_names_its_job(keys: Keys) -> None:
    take("a").release()
    [entry] = map(json.loads, keys.table.values())
    assert (entry["job"], entry["driver"], entry["released"]) == ("job-a", "a", True)


def test_a_job_waits_as_long_as_it_was_told_and_looks_again_twice_a_second(keys: Keys, clock: Clock) -> None:
    take("a")
    for timeout_s, rests in ((0.0, []), (1.2, [0.5, 0.5, 0.2]), (1.02, [0.5, 0.5, 0.05])):
        clock.rests.clear()
        with pytest.raises(LockBusy, match="the lock of fleet lab is held by job job-a"):
            take("b", timeout_s=timeout_s)
        assert clock.rests == rests


def test_a_waiting_job_is_told_of_a_new_holder(keys: Keys, clock: Clock) -> None:
    held, told = [take("a")], list[str]()

    def waiting(holder: Holder) -> None:
        told.append(holder.job)
        held.pop().release()
        if holder.job == "job-a":
            held.append(take("c"))

    assert take("b", timeout_s=5, waiting=waiting).hold()
    assert told == ["job-a", "job-c"]


def test_a_waiting_job_is_told_of_a_holder_only_once(keys: Keys, clock: Clock) -> None:
    take("a")
    told = list[str]()
    with pytest.raises(LockBusy):
        take("b", timeout_s=5, waiting=lambda holder: told.append(holder.job))
    assert told == ["job-a"]


def test_fleets_have_locks_of_their_own(keys: Keys) -> None:
    take("a", "lab")
    assert take("b", "lab2").hold()


def test_a_released_lock_can_be_taken(keys: Keys) -> None:
    first = take("a")
    first.release()
    second = take("b")
    assert second.hold()
    assert not first.hold()


def test_a_job_takes_a_lock_again_that_it_has_released_unless_another_has_it(keys: Keys) -> None:
    first = take("a")
    first.release()
    assert first.hold()
    with pytest.raises(LockBusy):
        take("b")
    first.release()
    take("b").release()
    assert not first.hold()


def test_a_job_takes_its_lock_again_for_a_new_plan_once_no_other_has_it(keys: Keys, jobs: Jobs) -> None:
    first = take("a")
    assert (first.take_again(), numbers(keys)) == (True, [0]), "it was never released"
    first.release()
    second = take("b")
    assert not first.take_again()
    second.release()
    assert (first.take_again(), first.hold(), second.hold()) == (True, True, False)
    first.release()
    take("c")
    jobs.remove("c")
    assert first.take_again(), "its job is dead"


def test_the_lock_of_a_dead_job_can_be_taken(keys: Keys, jobs: Jobs) -> None:
    take("a")
    jobs.remove("a")
    assert take("b").hold()


def test_a_holder_that_was_frozen_notices_that_it_lost_the_lock(keys: Keys, jobs: Jobs) -> None:
    frozen = take("a")
    jobs.remove("a")
    take("b").release()
    take("c")
    jobs.add("a")
    assert not frozen.hold()


def test_a_waiting_job_is_told_each_holder_once_and_gets_the_lock(keys: Keys) -> None:
    held, holders = take("a"), []

    def waiting(holder: Holder) -> None:
        holders.append(holder.job)
        held.release()

    assert take("b", timeout_s=5, waiting=waiting).hold()
    assert holders == ["job-a"]


def test_a_waiting_job_can_be_stopped(keys: Keys) -> None:
    take("a")
    with pytest.raises(Interrupted):
        take("b", timeout_s=60, stopped=lambda: True)


def test_old_entries_are_deleted_but_never_the_highest(keys: Keys) -> None:
    for _ in range(5):
        take("a").release()
    assert [key for _, key in keys.table] == [b"lock:lab:4"]


def test_a_job_with_an_outdated_number_does_not_get_the_lock_with_it(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between read and write, other jobs took the lock and deleted entries: the number is free, but not the highest."""
    take("a").release()
    put, entered = keys.put, []

    def late(key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        if not entered and key == b"lock:lab:1":
            entered.append(key)
            monkeypatch.setattr(lock_module, "_internal_kv_put", put)
            take("b").release()
            take("c")
        return put(key, value, overwrite, namespace=namespace)

    monkeypatch.setattr(lock_module, "_internal_kv_put", late)
    with pytest.raises(LockBusy) as caught:
        take("a")
    assert caught.value.holder.job == "job-c"
    assert [key for _, key in keys.table] == [b"lock:lab:2"]


def test_of_many_jobs_at_once_only_one_holds_the_lock_at_a_time(keys: Keys, jobs: Jobs) -> None:
    inside, most, taken = [0], [0], []

    def work(job: str) -> None:
        for _ in range(20):
            held = take(job, timeout_s=30)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0)
            inside[0] -= 1
            taken.append(job)
            held.release()

    jobs.update(f"w{number}" for number in range(6))
    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most[0], len(taken)) == (1, 120)


def test_only_a_lock_whose_job_died_is_abandoned_and_can_be_released(keys: Keys, jobs: Jobs) -> None:
    take("a")
    take("b", fleet="held")
    take("c", fleet="given-back").release()
    jobs.discard("a")
    [left] = lock_module.left_locks()
    assert left == LeftLock("lab", 0, "job-a")
    assert not lock_module.release_left("held", 0)
    assert lock_module.release_left("lab", 0)
    assert lock_module.left_locks() == []
    assert take("c").hold()


def test_abandoned_locks_are_listed_by_fleet_with_their_newest_number(keys: Keys, jobs: Jobs) -> None:
    for number in (2, 1):
        write(keys, number, driver="gone", job="job-gone")
    for fleet in ("zoo", "a:b", "farm"):
        take_lock(fleet, Holder("", driver="gone"), 0.0, lambda _: None, lambda: False)
    assert lock_module.left_locks() == [
        LeftLock("a:b", 0, ""), LeftLock("farm", 0, ""), LeftLock("lab", 2, "job-gone"), LeftLock("zoo", 0, "")]
    assert not lock_module.release_left("lab", 1)


def test_a_lock_whose_entry_disappears_meanwhile_is_not_abandoned(
    keys: Keys, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    take("a")
    jobs.discard("a")
    monkeypatch.setattr(lock_module, "_internal_kv_get", lambda key, namespace: None)
    assert lock_module.left_locks() == []
