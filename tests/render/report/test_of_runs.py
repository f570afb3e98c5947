"""The table at the end of an apply: a row per replica, reasons for those not ready, and totals."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fleetctl.documents.events import ReplicaOutcome
from fleetctl.render.report.model import TEXT_TONES
from fleetctl.render.report.of_runs import ORDER, outcomes_report, totals
from fleetctl.render.report.terminal import print_report


def row(kind: str = "ready", **more: Any) -> ReplicaOutcome:
    return ReplicaOutcome.model_validate({"model": "org/m:1", "outcome": kind, **more})


def printed(*rows: ReplicaOutcome, width: int = 100, **console: Any) -> str:
    out = io.StringIO()
    print_report(outcomes_report(rows), Console(file=out, width=width, **console))
    return out.getvalue()


def test_a_ready_replica_shows_its_address_and_duration() -> None:
    text = printed(row(replicaId=3, nodes=["node-a", "node-b"], address="10.0.0.7:7001", seconds=12.345))
    assert text.splitlines()[1].split() == ["org/m:1/3", "ready", "node-a,", "node-b", "10.0.0.7:7001", "12.3s"]


def test_every_member_that_serves_has_its_address() -> None:
    assert "h:1, h:2" in printed(row(replicaId=0, address="h:1", addresses=["h:1", "h:2"]))


def test_an_unknown_value_is_a_dash() -> None:
    known = row("ready", replicaId=2, nodes=["a"], address="h:1", seconds=1.0)
    lines = printed(known, row("skipped", replicaId=3)).splitlines()
    assert lines[2].split() == ["org/m:1/3", "skipped", "-", "-", "-"]


def test_every_replica_that_is_not_ready_has_its_reason_below() -> None:
    text = printed(row(replicaId=0, message="fine"),
                 row("failed", replicaId=1, code="ENGINE_EXITED", message="no\nweights"),
                 row("blocked", replicas=2, code="INSUFFICIENT_GPU", message="needs 8 free GPUs"))
    assert "fine" not in text
    assert ("\n\nWhy\n  org/m:1/1 failed (ENGINE_EXITED)\n    no\n    weights\n"
            "  org/m:1 (x2) blocked (INSUFFICIENT_GPU)\n    needs 8 free GPUs\n\n") in text


def test_the_reason_of_a_failure_comes_before_the_engines_output_and_the_command_for_the_rest_after_it() -> None:
    said = "the engine exited with code 1; cause: ValueError: no room; last output: Traceback\n  File"
    text = printed(row("failed", replicaId=1, code="ENGINE_EXITED", message=said))
    assert ("  org/m:1/1 failed (ENGINE_EXITED)\n    the engine exited with code 1; cause: ValueError: no room\n"
            "    last output:\n      Traceback\n        File\n    all of it: fleetctl logs org/m:1/1\n") in text
    why = f"variant large failed in its place, as org/m:1/0: ENGINE_EXITED: {said}"
    text = printed(row("ready", replicaId=1, code="OTHER_VARIANT", message=why))
    assert "in its place, as org/m:1/0: ENGINE_EXITED" in text
    assert "        File\n" in text
    assert "fleetctl logs" not in text, "that log is of a replica that did not fail"


@pytest.mark.parametrize(("rows", "line"), [
    ([], "Apply: nothing to do, 0 removed"),
    ([row()], "Apply: 1 ready, 0 removed"),
    ([row("blocked", replicas=3), row(), row("failed"), row()], "Apply: 2 ready, 1 failed, 3 blocked, 0 removed"),
    ([row(kind) for kind in ORDER], "Apply: 1 ready, 1 gone, 1 starting, 1 failed, 1 blocked, 1 skipped, 0 removed"),
])
def test_the_last_line_counts_replicas(rows: list[ReplicaOutcome], line: str) -> None:
    assert totals(rows) == line
    assert printed(*rows).splitlines()[-1] == line


def test_every_outcome_has_a_rank_and_a_color() -> None:
    from typing import get_args

    from fleetctl.documents.events import Outcome

    assert set(ORDER) == set(get_args(Outcome)) <= set(TEXT_TONES)


def test_a_replica_with_weights_has_a_row_with_the_source_and_failed_sources() -> None:
    text = printed(row(replicaId=0, weights={"source": "peer", "from": "org/m:1/3", "bytes": 3 << 30, "seconds": 12.34},
                     notes=["org/m:1/2 at 10.0.0.1:7000: another hash"]),
                 row(replicaId=1, weights={"source": "disk", "seconds": 0.2, "reused": 3 << 30}), row(replicaId=2))
    lines = [line.split() for line in text.splitlines()]
    assert ["org/m:1/0", "peer", "org/m:1/3", "3Gi", "-", "12.3s"] in lines
    assert ["org/m:1/1", "disk", "0", "3Gi", "0.2s"] in lines
    assert "org/m:1/2 at 10.0.0.1:7000: another hash" in text
    assert {"weights", "notes"}.isdisjoint(row(replicaId=1).model_dump())


@pytest.mark.parametrize("width", [50, 80, 200])
def test_no_line_is_wider_than_the_console_or_ends_in_blanks(width: int) -> None:
    long = row("failed", model="m" * 90, replicaId=1, nodes=[f"node-{n}" for n in range(30)], message="why " * 60)
    lines = printed(long, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line != line.rstrip()] == []


def test_an_engines_output_cannot_control_the_terminal_or_become_markup() -> None:
    odd = row("failed", model="\x1b[2Jm", replicaId=0, nodes=["\x1b]0;x\x07"], message="\x1b[31m[bold]red[/bold]\r")
    text = printed(odd, force_terminal=True, color_system=None)
    assert "\x1b" not in text
    assert "[bold]red[/bold]" in text


def test_a_column_names_the_variants_of_replicas_only_if_some_have_one() -> None:
    text = printed(row(replicaId=0, variant="a100", nodes=["n"]), row("failed", replicaId=1, message="no weights"))
    head, first, second = text.splitlines()[:3]
    assert head.split()[:3] == ["REPLICA", "VARIANT", "OUTCOME"]
    assert first.split()[:3] == ["org/m:1/0", "a100", "ready"]
    assert second.split()[:3] == ["org/m:1/1", "-", "failed"]
    assert "VARIANT" not in printed(row(replicaId=0))
