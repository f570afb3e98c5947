from __future__ import annotations

import io

import pytest
from model_keys import NDIF_KEY
from rich.console import Console

from fleetctl.documents.difference import PlanChange, Revision
from fleetctl.documents.plan import (
    Addition,
    Blocked,
    Certificate,
    Drift,
    GitFacts,
    Lost,
    Note,
    Plan,
    PlanFleet,
    Reason,
    Summary,
    Unmanaged,
)
from fleetctl.render.report.of_plan import certificate_sentence, plan_report, sign_of
from fleetctl.render.report.terminal import COUNTED_SHOWN, print_report
from tests.render.render_plans import create, member, plan, row


def printed(document: Plan, width: int = 80, **console: object) -> str:
    out = io.StringIO()
    print_report(plan_report(document), Console(file=out, width=width, **console))
    return out.getvalue()


def test_each_model_has_a_row_with_its_sign_numbers_and_reason() -> None:
    text = printed(plan(models=[row("org/a", 3, 1, create=2, reason="2 to create: 1 of 3 live")]), width=120)
    line = next(line for line in text.splitlines() if "org/a" in line)
    assert line.split() == ["+", "org/a", "3", "1", "2", "-", "2", "to", "create:", "1", "of", "3", "live"]


@pytest.mark.parametrize(("counts", "sign"), [
    ({}, "="), ({"create": 1}, "+"), ({"surplus": 1}, "~"), ({"blocked": 1}, "!"), ({"blocked": 1, "create": 1}, "!"),
    ({"starting": 1}, "*"), ({"outdated": 1}, "*"), ({"outdated": 1, "surplus": 1}, "~"),
    ({"starting": 1, "create": 1}, "+"),
])
def test_the_sign_shows_the_most_severe_state(counts: dict[str, int], sign: str) -> None:
    assert sign_of(row("m", 1, 1, **counts)) == sign


@pytest.mark.parametrize("width", [60, 80, 109, 110, 200])
def test_no_line_is_wider_than_the_console_or_ends_in_blanks(width: int) -> None:
    blocked = Blocked(model="m" * 70, replicas=1, code="GANG_NEEDS_NODES", message="needs 3 nodes " * 12)
    document = plan(
        models=[row("m" * 70, 3, 1, create=1, blocked=1, reason="one placed, one blocked: " * 8)], blocked=[blocked],
        actions=[create("m" * 70, 0, *(member(f"node-{number}", gpus=80_000, rank=number) for number in range(30)))],
    )
    lines = printed(document, width).splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("width", [50, 60, 72])
def test_a_long_name_breaks_after_a_separator(width: int) -> None:
    name = "mistralai/Mixtral-8x22B-Instruct-v0.1-quantized-to-four-bits-for-small-cards"
    lines = [line.split() for line in printed(plan(models=[row(name, 2, 1, reason="1 live")]), width).splitlines()]
    first = next(number for number, words in enumerate(lines) if words[1:2] and name.startswith(words[1]))
    parts = [lines[first][1]]
    while "".join(parts) != name:
        parts.append(lines[first + len(parts)][0])
    assert len(parts) > 1
    assert all(part[-1] in "/-." for part in parts[:-1])


@pytest.mark.parametrize("key", [
    NDIF_KEY, f"nnsight.modeling.language.{NDIF_KEY}", "x" * 512, "a/" * 200 + "b", "w " * 255 + "x", "m" * 57])
@pytest.mark.parametrize("width", [110, 120])
def test_a_long_key_leaves_the_reasons_beside_it(key: str, width: int) -> None:
    models = [row(key, 3, 1, create=2, reason="create 2: 1 of 3 live"), row("org/a", 1, 0, create=1, reason="as asked")]
    lines = printed(plan(models=models), width).splitlines()
    [heads] = [line.split() for line in lines if "MODEL" in line]
    assert heads == ["MODEL", "WANTED", "LIVE", "CREATE", "BLOCKED", "REASON"]
    [other] = [line.split() for line in lines if line.startswith("+  org/a")]
    assert other == ["+", "org/a", "1", "0", "1", "-", "as", "asked"]
    begins = next(number for number, line in enumerate(lines) if line.startswith("+  "))
    shown = [line[3:].split("  ")[0].strip() for line in lines[begins:begins + 14]]
    assert "".join("".join(shown).split()).startswith("".join(key.split()))
    assert max(map(len, lines)) <= width


def test_a_reason_goes_below_its_model_in_a_narrow_window() -> None:
    lines = printed(plan(models=[row("org/a", 1, 1, reason="nothing to do")])).splitlines()
    at = next(number for number, line in enumerate(lines) if "org/a" in line)
    assert lines[at + 1].strip() == "nothing to do"


def test_every_replica_to_create_names_its_nodes_and_gpus() -> None:
    actions = [create("big", 4, member("node-a", gpus=80_000), member("node-b", gpus=80_000, rank=1)),
               create("small", 0, member("node-c", gpus=2_500)), create("cpu", 1, member("head", cpus=20_000))]
    text = printed(plan(actions=actions))
    assert "+ big/4: 8 GPUs on each of node-a, node-b" in text
    assert "+ small/0: 0.25 GPU on node-c" in text
    assert "+ cpu/1: 2 CPUs on head" in text


def test_ignored_node_labels_are_shown() -> None:
    notes = [Note(code="SLOTS_LABEL_IGNORED", level="warning", message="c: the label is \x1b[31mred", node_count=1)]
    text = printed(plan(notes=notes))
    assert "Notes on nodes\n  ~ c: the label is" in text
    assert "\x1b" not in text
    assert "Notes on nodes" not in printed(plan())


def test_a_blocked_model_has_its_arithmetic() -> None:
    reason = Reason(code="INSUFFICIENT_GPU", node_count=7, need="8 GPUs", best="6 GPUs", short="2 GPUs",
                    examples=["n1", "n2", "n3", "n4", "n5"])
    blocked = Blocked(model="big", replicas=2, code="INSUFFICIENT_GPU", message="too few", reasons=[reason])
    text = printed(plan(blocked=[blocked]), width=120)
    assert "! big: 2 replicas, INSUFFICIENT_GPU" in text
    assert "7 nodes: INSUFFICIENT_GPU, need 8 GPUs, best 6 GPUs, short 2 GPUs (n1, n2, n3, n4, n5 and 2 more)" in text


def test_a_reason_does_not_repeat_the_arithmetic_of_its_message() -> None:
    reason = Reason(code="INSUFFICIENT_GPU", node_count=1, need="8 free GPUs", best="6 on n1", short="2",
                    examples=["n1"])
    message = "needs 8 free GPUs; best is 6 on n1, short 2"
    blocked = Blocked(model="big", replicas=1, code="INSUFFICIENT_GPU", message=message, reasons=[reason])
    assert "\n    1 node: INSUFFICIENT_GPU (n1)\n" in printed(plan(blocked=[blocked]))


def test_the_arithmetic_of_a_blocked_model_is_shown_once() -> None:
    message = "needs 8 free GPUs; best is 6 on node-a, short 2"
    text = printed(plan(
        models=[row("big", 1, 0, blocked=1, reason=f"1 blocked: {message}")],
        blocked=[Blocked(model="big", replicas=1, code="INSUFFICIENT_GPU", message=message)],
    ), width=120)
    assert text.count(message) == 1
    assert "1 blocked: INSUFFICIENT_GPU, see below" in text


def test_a_reason_without_nodes_has_no_row() -> None:
    reasons = [Reason(code="GANG_NEEDS_NODES", node_count=0, need="2 nodes", best="0", short="2", examples=[]),
               Reason(code="INSUFFICIENT_GPU", node_count=1, need="8 free GPUs", best="6 on n1", short="2",
                      examples=["n1"])]
    blocked = Blocked(model="big", replicas=1, code="GANG_NEEDS_NODES", message="needs 2 nodes, 0 found",
                      reasons=reasons)
    text = printed(plan(blocked=[blocked]), width=120)
    assert "0 nodes:" not in text
    assert "1 node: INSUFFICIENT_GPU, need 8 free GPUs, best 6 on n1, short 2 (n1)" in text


def test_drift_unmanaged_and_lost_replicas_are_reported_as_not_acted_on() -> None:
    text = printed(plan(
        drift=[Drift(model="a", replica_id=0, code="SPEC_CHANGED", message="runs another spec")],
        unmanaged=[Unmanaged(model="b", foreign_id="3f:ModelActor:b", state="ALIVE", message="another scheme")],
        lost=[Lost(model="c", replica_id=7, nodes=["n"], message="its node n is dead")],
    ))
    assert "Drift: 1 (reported, never acted on)" in text
    assert "3f:ModelActor:b: another scheme" in text
    assert "c/7: its node n is dead" in text


def test_many_models_with_nothing_to_do_share_one_line() -> None:
    quiet = [row(f"quiet-{number}", 1, 1) for number in range(COUNTED_SHOWN + 1)]
    text = printed(plan(models=[*quiet, row("busy", 2, 1, create=1)]))
    assert "quiet-" not in text
    assert f"{len(quiet)} models with nothing to do" in text
    assert "busy" in text


def test_hundreds_of_places_are_cut_and_the_rest_counted() -> None:
    text = printed(plan(actions=[create("m", number, member(f"n{number}", gpus=10_000)) for number in range(500)]))
    assert "and 300 more (--format json lists them)" in text


def short_of_cards(number: int, replicas: int = 1, message: str = "needs 1 free GPU") -> Blocked:
    return Blocked(
        model=f"org/m{number}", replicas=replicas, code="INSUFFICIENT_GPU", message=message,
        would_fit=[Addition(nodes=1, nodes_for_all=1 + replicas // 8, shape="8xH100", like="n1")],
        reasons=[Reason(code="INSUFFICIENT_GPU", node_count=5, examples=["n1", "n2"], need="1 free GPU",
                        best="0", short="1")])


def test_many_models_on_few_cards_share_lines_below_the_table() -> None:
    """60 models want 120 cards and there are 40: a row for each model, and shared reasons shown once."""
    wanted = [1 + number % 3 for number in range(60)]
    placed = [int(number < 40) for number in range(60)]
    text = printed(plan(
        models=[row(f"org/m{number}", one, 0, create=new, blocked=one - new, reason="; ".join(
                    [*([f"create {new}: 0 of {one} live"] if new else []),
                     *([f"{one - new} blocked: needs 1 free GPU"] if one > new else [])]))
                for number, (one, new) in enumerate(zip(wanted, placed, strict=True))],
        actions=[create(f"org/m{number}", 0, member(f"n{number // 8}", gpus=10_000)) for number in range(40)],
        blocked=[short_of_cards(number, one - new)
                 for number, (one, new) in enumerate(zip(wanted, placed, strict=True)) if one > new]))
    lines = text.splitlines()
    assert sum(line.startswith(("+  org/", "!  org/")) for line in lines) == 60
    assert len(lines) < 60 + 30
    assert "  + 1 GPU on n4 (each): org/m32/0, org/m33/0" in text
    assert "  ! 46 models: 80 replicas, INSUFFICIENT_GPU\n    org/m1, org/m2, org/m4" in text
    assert text.count("5 nodes: INSUFFICIENT_GPU") == 1
    assert text.count("would fit with 1 more node (8xH100, like n1)\n") == 1


def test_models_blocked_for_different_reasons_are_listed_apart_and_the_rest_counted() -> None:
    few = [short_of_cards(0, 2), short_of_cards(1, 9, "needs 8 free GPUs")]
    text = printed(plan(blocked=few))
    assert "! org/m0: 2 replicas, INSUFFICIENT_GPU\n" in text
    assert "both with 1" in text
    assert "! org/m1: 9 replicas, INSUFFICIENT_GPU\n" in text
    many = [short_of_cards(number, message=f"needs {number} free GPUs") for number in range(12)]
    assert "and 2 more (--format json lists them)" in printed(plan(blocked=many))


def test_a_narrow_terminal_omits_only_reasons_that_repeat_the_counts() -> None:
    models = [row("org/a", 3, 1, create=2, reason="create 2: 1 of 3 live"),
              row("org/b", 3, 1, create=2, reason="create 2: 1 of 3 live, 1 starting"),
              row("org/c", 3, 3, reason="nothing to do: 3 of 3 live"), row("org/d", 0, 0, reason="no target")]
    text = printed(plan(models=models))
    assert "nothing to do" not in text
    assert "no target\n" in text
    assert "create 2: 1 of 3 live\n" not in text
    assert "create 2: 1 of 3 live, 1 starting" in text


def test_unmanaged_replicas_for_the_same_reason_share_a_line() -> None:
    unmanaged = [Unmanaged(model=f"m{number % 50}", replica_id=number // 50, state="ALIVE", message="x")
                 for number in range(100)]
    text = printed(plan(unmanaged=unmanaged), width=200)
    assert "m0/0-1, m1/0-1" in text
    assert "m19/0-1 and 30 more: x" in text


def test_the_last_line_has_the_totals_and_the_promise_never_to_remove() -> None:
    text = printed(plan(summary=Summary(create=3, blocked=1, hold=2)))
    assert text.splitlines()[-1] == "Plan: 3 to create, 1 blocked, 2 held, 0 to remove (fleetctl never removes)"


@pytest.mark.parametrize(("certificate", "sentence"), [
    (Certificate(placed=2, wanted=2, upper_bound=2, status="optimal", method="m"),
     "Places both missing replicas."),
    (Certificate(placed=1, wanted=1, upper_bound=1, status="optimal", method="m"), "Places the missing replica."),
    (Certificate(placed=2, wanted=3, upper_bound=2, status="optimal", method="slots"),
     "Places 2 of the 3 missing replicas, proven best."),
    (Certificate(placed=1, wanted=5, upper_bound=3, status="feasible", method="slots"),
     "Places 1 of the 5 missing replicas, at most 3 possible."),
    (Certificate(placed=1, wanted=5, upper_bound=3, status="feasible", method="slots", repacked_bound=4),
     "Places 1 of the 5 missing replicas, at most 3 possible; at most 4 if running replicas could be moved."),
    (Certificate(placed=0, wanted=5, upper_bound=0, status="optimal", method="slots", on_new_nodes=2),
     "None of the 5 missing replicas can be placed; 2 would run on new nodes."),
    (Certificate(placed=0, wanted=1, upper_bound=0, status="optimal", method="slots", repacked_bound=1),
     "The missing replica cannot be placed; it might fit if running replicas could be moved."),
])
def test_the_certificate_is_one_sentence(certificate: Certificate, sentence: str) -> None:
    assert certificate_sentence(certificate) == sentence


def test_the_effect_of_the_change_alone_comes_before_the_models() -> None:
    change = PlanChange(base=Revision(name="origin/main"), create=2, blocked=0, also_without=1)
    models, actions = [row("org/a", 1, 0, create=1)], [create("org/a", 0, member("n"))]
    text = printed(plan(models=models, change=change, actions=actions))
    sentence = "2 more to create; the other 1 of 3 to create is due anyway."
    assert text.index(f"This change alone, since origin/main\n  {sentence}\n") < text.index("org/a")
    assert text.index("org/a") < text.index("Would create")
    assert "\nThe files have not changed in meaning since origin/main.\n" in text


def test_hostile_names_are_shown_as_text() -> None:
    evil = "[red]x[/red]\x1b[2J\u202e:3"
    document = plan(
        models=[row(evil, 1, 0, create=1, reason=evil)], actions=[create(evil, 0, member(evil, gpus=10_000))],
        blocked=[Blocked(model=evil, replicas=1, code="X", message=evil)], fleet=PlanFleet(name=evil),
        unmanaged=[Unmanaged(model=evil, state="ALIVE", message=evil + "\nPlan: 0 to create")],
    )
    text = printed(document, width=200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]x[/red]\\x1b[2J\\u202e:3" in text
    assert [line for line in text.splitlines() if line.startswith("Plan:")] == [text.splitlines()[-1]]


def test_the_revision_of_the_fleet_is_named() -> None:
    git = GitFacts(commit="a" * 40, branch="main", dirty=True)
    text = printed(plan(fleet=PlanFleet(name="lab", git=git)), width=120)
    assert "at aaaaaaaaaa with uncommitted changes" in text


def test_color_is_used_only_on_a_color_terminal() -> None:
    document = plan(models=[row("org/a", 2, 1, create=1)], actions=[create("org/a", 0, member("n", gpus=10_000))])
    colored = printed(document, force_terminal=True, color_system="standard")
    assert "\x1b[" not in printed(document)
    assert "\x1b[" in colored
