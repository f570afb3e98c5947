"""`prefetch` on a node: it fetches as a starting member does, so that a later member finds everything on disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_pieces import SECRET
from weights_world import SHARD, fetch, files_in, model, serving

from fleetctl.agent import leftovers, model_files, prefetch
from fleetctl.agent.messages import Action, Engine, GotWeights, Lifecycle, Member
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.prefetch import Order, PrefetchResult, fetch_here
from fleetctl.agent.run import step_all
from fleetctl.agent.run_messages import (
    ApplyRequest,
    EventStream,
    Holder,
    Plan,
    PlanFleet,
    PrefetchMember,
    PrefetchRequest,
    ShapeGroup,
    ShapeMember,
    Spec,
)
from fleetctl.agent.wire import parse
from fleetctl.documents.answers import FetchedWeights
from fleetctl.inventory.cold import _FILE_NAME, NOTE

NONE: dict[str, str] = {"FLEETCTL_RANK": "0", "FLEETCTL_GROUP_SIZE": "4", "FLEETCTL_MODEL": "m"}


def wanted(artifact: str, origin: str | Path, *sources: dict[str, Any], **more: Any) -> PrefetchMember:
    """A member of a request; a variable of its engine holds the origin's folder."""
    return parse(PrefetchMember, {
        "weights": {"artifact": artifact, "from": [{"path": "$(MODELS)"}], "sources": list(sources), **more},
        "engine": {"env": {"MODELS": str(origin)}}, "variables": NONE})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setattr(prefetch, "session_secret", lambda: SECRET)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(model_files, "log_path", lambda name: str(tmp_path / "logs" / name))
    monkeypatch.setattr(model_files.ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n1"))


def notes(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "logs").iterdir())


def test_complete_weights_have_a_note_until_they_are_removed(
    tmp_path: Path, origin: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_here(Order([wanted("f" * 64, origin)], 60))
    assert notes(tmp_path) == []
    fetch_here(Order([wanted(artifact, origin, view=SHARD)], 60))
    found = [_FILE_NAME.fullmatch(name.removeprefix(f"{NOTE}n1")) for name in notes(tmp_path)]
    events = [json.loads((tmp_path / "logs" / name).read_text()) for name in notes(tmp_path)]
    # the origin has no separate parts, so the whole model is on this node
    assert [(one[1], one[2]) for one in found if one] == [(one["artifact"], one["view"]) for one in events]
    assert {one["view"] is None for one in events} == {True, False}
    before = notes(tmp_path)
    for removed, left in ((False, before), (True, [])):
        monkeypatch.setattr(leftovers, "remove", lambda *_, removed=removed: removed)
        leftovers.remove_here([artifact])
        assert notes(tmp_path) == left


def test_a_node_fetches_from_a_replica_and_a_member_there_fetches_nothing(
    tmp_path: Path, origin: Path, artifact: str
) -> None:
    there = fetch(tmp_path / "there", artifact, origins=[{"path": str(origin)}])
    with serving(tmp_path / "there", there) as (_, source):
        [row] = fetch_here(Order([wanted(artifact, tmp_path / "gone", source)], 60))
    got = row.fetched
    assert got is not None
    assert (got.source, got.from_.split()[0], got.bytes) == ("peer", source["replica"], there.size)
    for view in (None, SHARD):
        member = fetch(tmp_path / "here", artifact, view=view, rank=3)
        assert (member.source, member.size) == ("disk", 0)
    [again] = fetch_here(Order([wanted(artifact, tmp_path / "gone")], 60))
    assert again.fetched is not None
    assert (again.fetched.source, again.fetched.bytes) == ("disk", 0)


def test_each_artifact_has_its_own_result(tmp_path: Path, origin: Path, artifact: str) -> None:
    other = model(tmp_path / "other", seed=1)
    members = [wanted(other, origin), wanted(artifact, origin), wanted(other, tmp_path / "other")]
    rows = fetch_here(Order(members, 60))
    assert [row.artifact for row in rows] == [other, artifact, other]
    trouble = rows[0].trouble or ""
    assert "has another hash" in trouble or "no source has the index" in trouble
    assert [row.fetched.source for row in rows[1:3] if row.fetched] == ["origin", "origin"]
    assert files_in(tmp_path / "here" / artifact / "files") == files_in(origin)


def test_weights_that_are_not_there_in_time_are_reported(artifact: str, origin: Path) -> None:
    [row] = fetch_here(Order([wanted(artifact, origin)], 0))
    assert "in time" in (row.trouble or "")


class Nodes:
    """Nodes that are asked to fetch; `answer` lets one answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, Order]] = []
        self.answers: dict[str, NodeAnswer[list[PrefetchResult]]] = {}
        monkeypatch.setattr(prefetch, "Asked", self.ask)
        monkeypatch.setattr(prefetch, "add", lambda *_: True)

    def ask(self, _: object, node_id: str, order: Order, limit_s: float) -> Any:
        assert limit_s == order.timeout + prefetch.MARGIN_S
        self.asked.append((node_id, order))
        return SimpleNamespace(answer=lambda: self.answers.pop(node_id, None))

    def answer(self, node_id: str, *rows: PrefetchResult, trouble: str = "") -> None:
        self.answers[node_id] = NodeAnswer(node_id, list(rows) or None, trouble)

    def names(self) -> list[str]:
        return [node_id for node_id, _ in self.asked]


GOT = GotWeights("origin", "/m", 7, 1.5)


def test_a_few_nodes_fetch_at_a_time_and_each_artifact_has_its_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, (one, two) = Nodes(monkeypatch), (wanted(letter * 64, "/m") for letter in "12")
    request = PrefetchRequest({"a": [one, two], "b": [one], "c": [two], "none": []}, 60.0, 2, "j")
    run = prefetch.PrefetchRun(request, EventStream())
    step_all(run.tasks)
    assert nodes.names() == ["a", "b"]
    nodes.answer("b", trouble="no answer")
    step_all(run.tasks)
    step_all(run.tasks)
    assert nodes.names() == ["a", "b", "c"]
    nodes.answer("a", PrefetchResult("1" * 64, GOT), PrefetchResult("2" * 64, trouble="no room"))
    nodes.answer("c", PrefetchResult("2" * 64, GOT))
    step_all(run.tasks)
    assert [task.outcome and task.outcome.outcome for task in run.tasks] == ["ready", "failed", "failed", "ready"]
    assert run.end() == 3
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()][1:]
    assert [(row["nodeId"], row["artifact"][0], row.get("trouble") or row["fetched"]["bytes"]) for row in events[:-1]
            ] == [("b", "1", "no answer"), ("a", "1", 7), ("a", "2", "no room"), ("c", "2", 7)]
    assert [FetchedWeights.model_validate(row) for row in events[:-1]]
    assert (events[-1]["message"], events[-1]["exitCode"]) == ("2 failed", 3)


def test_a_node_carries_out_one_order_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, there = Nodes(monkeypatch), wanted("1" * 64, "/m")
    floor = [Member("main", 0, "Standalone", 0, node_id, node_id, weights=there.weights, variables=there.variables)
             for node_id in ("a", "b")]
    engine = Engine(("serve",), env={"MODELS": "/m"})
    plan = Plan("p", PlanFleet("lab"), {"h": Spec([ShapeGroup("main", [ShapeMember(engine)])])},
                [Action(f"{model}/prefetch", "prefetch", model, "h", Lifecycle(60.0), floor) for model in ("m", "n")])
    events = SimpleNamespace(emit=lambda *_, **__: None)
    run: Any = SimpleNamespace(events=events)
    tasks = prefetch.fetches_of(ApplyRequest(plan, {}, {}, "j", Holder()), run)
    step_all(tasks)
    assert nodes.names() == ["a", "b"]
    assert [order.members[0].engine for _, order in nodes.asked] == [engine] * 2
    nodes.answer("b", PrefetchResult("1" * 64, GOT))
    step_all(tasks)
    step_all(tasks)
    assert nodes.names() == ["a", "b", "b"]
