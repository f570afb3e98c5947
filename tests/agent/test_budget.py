"""The restarts of a replica that count; its processes, one after another, share only the file. Ray is simulated."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import budget
from fleetctl.agent.budget import HEALTHY_S, Restarts, RestartsUsed, give_restart
from fleetctl.agent.messages import Lifecycle, Place
from fleetctl.agent.report import StartFailed

FAILURE = StartFailed("ENGINE_EXITED", "the engine exited with code 3; last output: no memory", [Place(node_id="n1")])
LONGEST_S = budget.node.MAX_BACKOFF_S


class Lives:
    """The lives of one actor. Each but the first begins with a restart by Ray; `now` = the current one's restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, most: int) -> None:
        self.log, self.most, self.actor_id, self.total = folder / "engine.log", most, "ab", 0
        self.pauses: list[float] = []
        self.timers: list[Any] = []
        self.keys = Keys().install(monkeypatch, budget)
        monkeypatch.setattr(budget, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
            get_actor_id=lambda: self.actor_id)))
        monkeypatch.setattr(budget.node, "restart_count", lambda: self.total)
        monkeypatch.setattr(budget.node, "was_restarted", lambda: self.total > 0)
        monkeypatch.setattr(budget.node.time, "sleep", self.pauses.append)
        monkeypatch.setattr(budget, "later", self.later)
        self.now = self.new()

    def new(self) -> Restarts:
        return Restarts(str(self.log), Lifecycle(60.0, restart_max=self.most, restart_backoff=10.0))

    def later(self, after_s: float, call: Any) -> None:
        assert after_s == HEALTHY_S
        self.timers.append(call)

    @property
    def file(self) -> Path:
        return self.log.with_name("engine.log.restarts")

    def end(self, *, says: bool = True) -> None:
        """End a life, and begin the next one as Ray does, whatever has ended it."""
        if says:
            self.now.ended(FAILURE)
        self.total += 1
        self.now = self.new()
        self.now.count()

    def stay_healthy(self) -> None:
        self.now.ready()
        self.timers.pop()()


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lives:
    return Lives(monkeypatch, tmp_path, 3)


@pytest.mark.parametrize("says", [True, False], ids=["engine ends", "process killed"])
def test_restarts_in_a_row_are_limited_and_each_waits_longer(lives: Lives, *, says: bool) -> None:
    for _ in range(3):
        lives.end(says=says)
        lives.now.ready()
    with pytest.raises(RestartsUsed) as used:
        lives.end(says=says)
    assert lives.pauses == [10, 20, 40]
    assert str(used.value).startswith("all 3 restarts since 2")
    if says:
        assert str(used.value).endswith("used without 10 minutes of readiness; the engine exited with code 3; "
                                        "last output: no memory")
        assert (used.value.code, used.value.places) == ("ENGINE_EXITED", tuple(FAILURE.places))
    else:
        assert (used.value.code, used.value.places) == ("REPLICA_DIED", ())


def test_a_crash_a_month_never_uses_them_up(lives: Lives) -> None:
    """Ray's own count grows, and the replica says how many of it do not count."""
    for month in range(1, 100):
        lives.end()
        assert lives.now.ready() == month - 1
        lives.stay_healthy()
    assert lives.pauses == [10] * 99


def test_a_replica_that_is_not_healthy_between_them_gains_nothing_from_earlier_health(lives: Lives) -> None:
    lives.end()
    lives.stay_healthy()
    for _ in range(3):
        lives.end()
    with pytest.raises(RestartsUsed):
        lives.end()


def test_with_no_restart_allowed_the_first_end_is_final_and_reported_as_it_was(lives: Lives) -> None:
    lives.most = 0
    lives.now = lives.new()
    with pytest.raises(RestartsUsed) as used:
        lives.end()
    assert str(used.value) == str(FAILURE)


def test_a_given_restart_does_not_count_and_does_not_wait_even_if_none_is_left(lives: Lives) -> None:
    for _ in range(3):
        lives.end()
    for _ in range(5):
        give_restart("ab")
        lives.end(says=False)
    assert lives.now.ready() == 5
    assert lives.pauses == [10, 20, 40]
    assert lives.keys.table == {}
    give_restart("another actor")
    with pytest.raises(RestartsUsed):
        lives.end()


def test_the_reason_is_of_the_life_just_before(lives: Lives) -> None:
    lives.end()
    lives.end()
    lives.end()
    with pytest.raises(RestartsUsed, match="its process ended without a reason"):
        lives.end(says=False)


@pytest.mark.parametrize("text", [None, "", "{", "7", '{"actorId":"ab","restarts":"many"}', '{"actorId":"cd"}',
                                  "[" * 100_000], ids=["missing", "empty", "cut", "number", "wrong", "other", "deep"])
def test_a_file_that_says_nothing_starts_the_count_again_but_never_a_fast_loop(lives: Lives, text: str | None) -> None:
    lives.end()
    lives.end()
    for _ in range(3):
        lives.file.unlink() if text is None else lives.file.write_text(text)
        lives.end(says=False)
    assert lives.pauses == [10, 20, *[LONGEST_S] * 3]
    assert json.loads(lives.file.read_text())["restarts"] == 1


def test_where_no_file_can_be_written_each_restart_waits_for_the_longest_time(lives: Lives, tmp_path: Path) -> None:
    lives.log = tmp_path / "no folder" / "engine.log"
    lives.now = lives.new()
    for _ in range(3):
        lives.end()
    assert lives.pauses == [LONGEST_S] * 3


def test_a_new_replica_has_nothing_of_an_earlier_one_with_its_log(lives: Lives) -> None:
    for _ in range(3):
        lives.end()
    lives.actor_id, lives.total = "cd", 0
    lives.now = lives.new()
    assert lives.now.ready() is None
    lives.end(says=False)
    assert lives.pauses[3:] == [10]
