"""How a command ends: its exit code, what goes to which stream, and no traceback for users."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import run_here

from fleetctl.cli import app, ci, entry, signals
from fleetctl.errors import FleetctlError, LockHeld, PlanStale
from fleetctl.version import VERSION_LINE

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("arguments", [
    [], ["--tpyo"], ["pln"], ["plan"], ["plan", "--format", "xml"], ["show", "x", "extra"],
    ["plan", "--detailed-exitcode", "--tpyo"],
])
def test_a_mistake_in_the_command_line_exits_with_64_and_never_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err != ""


def test_an_argument_that_is_not_text_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["plan", "-f", os.fsdecode(b"\xff.yaml")]) == 64
    assert "not UTF-8" in capsys.readouterr().err


def test_a_mistyped_command_gets_the_nearest_name_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    entry.run(["pln"])
    err = capsys.readouterr().err
    assert "'plan'" in err
    assert "--help" in err


def test_the_version_names_this_fleetctl(run_cli: RunCli, run_process: RunCli) -> None:
    for done in (run_process("--version"), run_cli("--color", "never", "--version")):
        assert (done.returncode, done.stdout, done.stderr) == (0, VERSION_LINE + "\n", "")
    assert "Ray" in VERSION_LINE


@pytest.mark.parametrize(("error", "code"), [(FleetctlError, 1), (LockHeld, 5)])
def test_an_error_has_a_message_a_hint_and_its_exit_code(
    error: type[FleetctlError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fail_with(monkeypatch, error("no", hint="do this"))
    assert entry.run(["plan"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no\nhint: do this\n"


def test_a_stale_plan_says_what_moved(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _fail_with(monkeypatch, PlanStale("the plan is stale", listed=["node-a died", "org/one has 2 live, not 1"]))
    assert entry.run(["apply"]) == 6
    assert capsys.readouterr().err.splitlines()[1:] == ["moved: node-a died", "moved: org/one has 2 live, not 1"]


def test_a_bug_is_reported_in_one_sentence_with_a_report_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("FLEETCTL_DEBUG", raising=False)
    _fail_with(monkeypatch, KeyError("the\x1b[2Jkey"))
    assert entry.run(["plan"]) == 1
    err = capsys.readouterr().err
    assert "unexpected KeyError" in err
    assert "Traceback" not in err
    assert "\x1b" not in err
    (report,) = tmp_path.glob("fleetctl-report-*.txt")
    assert str(report) in err
    assert "Traceback" in report.read_text()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.ENAMETOOLONG])
def test_an_unusable_file_is_an_error_and_not_a_bug(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _fail_with(monkeypatch, OSError(code, os.strerror(code), "/data/x"))
    assert entry.run(["plan"]) == 1
    assert capsys.readouterr().err == f"error: {os.strerror(code)}: /data/x\n"
    assert list(tmp_path.iterdir()) == []


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLEETCTL_DEBUG", "1")
    _fail_with(monkeypatch, FleetctlError("no"))
    entry.run(["plan"])
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(monkeypatch, KeyboardInterrupt())
    assert entry.run(["plan"]) == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("wrapped", [ValueError, OSError, FleetctlError, KeyError])
def test_a_signal_whose_exception_a_library_wraps_is_no_bug_and_ends_with_its_own_code(
    number: signal.Signals, code: int, wrapped: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    handlers = {one: signal.getsignal(one) for one in signals.EXIT_CODES}
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def work(_: object) -> int:
        try:
            signal.raise_signal(number)
        except BaseException as error:
            raise wrapped(f"SystemExit: {error}") from None
        return 0

    monkeypatch.setattr(entry, "_run_app", work)
    try:
        signals.interrupt()
        assert entry.run(["plan"]) == code
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
    assert "bug" not in capsys.readouterr().err
    _fail_with(monkeypatch, FleetctlError("no"))
    assert entry.run(["plan"]) == 1  # an error of a later run is its own


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_waiting_command_with_its_code_and_no_traceback(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fleetctl", "plan", "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"#" * 200_000)  # more than a pipe holds: returns once the command has begun to read
            process.stdin.flush()
            process.send_signal(number)
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == code
    assert b"Traceback" not in err


@pytest.mark.slow
def test_a_reader_that_leaves_early_ends_the_command_quietly(fleet_file: Path, snapshot_file: Path) -> None:
    plan = ["plan", "-f", fleet_file, "--inventory", snapshot_file]
    for command in (plan, ["schema", "plan"]):  # text for people, and a document
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", *command], stdout=write, stderr=subprocess.PIPE, check=False,
            timeout=300,
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_message_without_a_report(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, unbuffered: str
) -> None:
    plan = ["plan", "-f", fleet_file, "--inventory", snapshot_file]
    for command in (plan, ["schema", "plan"], ["plan", "--help"], ["--version"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "fleetctl", *command], stdout=full, stderr=subprocess.PIPE, check=False,
                timeout=300, text=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "TMPDIR": str(tmp_path)},
            )
        assert done.returncode == 1
        assert done.stderr == "error: cannot write to standard output: No space left on device\n"
    assert list(tmp_path.glob("fleetctl-report-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_treated_as_one_without_a_reader(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, redirection: str
) -> None:
    command = [sys.executable, "-m", "fleetctl", "plan", "-f", fleet_file, "--inventory", snapshot_file, "--out",
               tmp_path / "saved.fleetplan"]
    done = subprocess.run(["sh", "-c", f'"$@" {redirection}', "sh", *command], capture_output=True, check=False,
                          timeout=300, text=True)
    assert (done.returncode, "Traceback" in done.stderr, "bug" in done.stderr) == (0, False, False)
    assert json.loads((tmp_path / "saved.fleetplan").read_text())["kind"] == "Plan"


def test_a_locale_without_unicode_gets_an_escaped_plan(
    fleet_file: Path, snapshot_file: Path, run_process: RunCli
) -> None:
    fleet_file.write_text(fleet_file.read_text().replace("org/one", "org/größe"), encoding="utf-8")
    done = run_process("plan", "-f", fleet_file, "--inventory", snapshot_file, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "org/gr\\xf6" in done.stdout


@pytest.mark.parametrize("command", [
    "plan -f {fleet} --inventory {snapshot} --format json", "fmt --diff -", "schema plan", "show {fleet}", "pln",
])
def test_a_real_process_prints_the_same_as_a_run_in_this_process(
    command: str, fleet_file: Path, snapshot_file: Path, run_cli: RunCli, run_process: RunCli
) -> None:
    words = [word.format(fleet=fleet_file, snapshot=snapshot_file) for word in command.split()]
    simulated, real = (run(*words, stdin="a: [") for run in (run_cli, run_process))
    assert (simulated.returncode, simulated.stdout, simulated.stderr) == (real.returncode, real.stdout, real.stderr)


def test_the_color_flag_overrides_no_color_and_force_color(
    fleet_file: Path, snapshot_file: Path, run_cli: RunCli
) -> None:
    command = ["plan", "-f", fleet_file, "--inventory", snapshot_file]
    assert "\x1b" not in run_cli(*command).stdout
    assert "\x1b" in run_cli(*command, env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in run_cli(*command, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout
    assert "\x1b" in run_cli("--color", "always", *command, env={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in run_cli("--color", "never", *command, env={"FORCE_COLOR": "1"}).stdout


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of every command, 80 columns wide."""
    commands = [*app.COMMANDS, *(f"ci {name}" for name in ci.COMMANDS), "history show", "model describe",
                "weights index", *(f"context {name}" for name in ("list", "set", "show", "unset", "use")),
                *(f"propose {name}" for name in ("from-live", "from-metrics", "scale"))]
    results = {command: run_here(*command.split(), "--help", env={"COLUMNS": "80"}) for command in commands}
    assert {command: done.stderr for command, done in results.items() if done.returncode} == {}
    return {command: done.stdout for command, done in results.items()}


def test_the_help_of_every_command_has_an_example_and_its_exit_codes(helps: dict[str, str]) -> None:
    for command in app.COMMANDS:
        assert f"fleetctl {command}" in helps[command].partition("Examples:")[2]
        assert "64" in helps[command].partition("Exit codes:")[2] or "Commands:" in helps[command], command


def test_the_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in app.COMMANDS if f"\n  {name} " not in text] == []
    assert "Exit codes:" in text


def test_the_help_lists_last_what_a_first_evening_does_not_need(capsys: pytest.CaptureFixture[str]) -> None:
    later = ("propose", "schema", "slots", "release-nodes", "model", "weights", "prefetch", "prune", "completion")
    assert entry.run(["--help"]) == 0
    before, _, last = capsys.readouterr().out.partition("\nNot needed at first:\n")
    assert [name for name in later if f"\n  {name} " in before or f"\n  {name} " not in f"\n{last}"] == []
    assert tuple(app.COMMANDS)[-len(later):] == later


def test_a_command_is_listed_with_the_first_line_of_its_own_help() -> None:
    listed = {**app.COMMANDS, **{f"ci {name}": one for name, one in ci.COMMANDS.items()}}
    first_lines = {name: one.load(name.split()[-1]).help.partition("\n")[0] for name, one in listed.items()}
    assert first_lines == {name: one.summary for name, one in listed.items()}


def test_the_help_of_every_command_fits_80_columns(helps: dict[str, str]) -> None:
    too_long = [f"{command}: {line}" for command, text in helps.items() for line in text.splitlines() if len(line) > 80]
    assert too_long == []


def test_the_help_offers_plain_fleet_files_only_if_the_command_takes_them(helps: dict[str, str]) -> None:
    wrong = [command for command, text in helps.items() if "FILE]" not in text.partition("\n")[0]
             and "A plain argument is one" in " ".join(text.split())]
    assert wrong == []


def test_a_flag_without_its_value_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["init", "--model"]) == 64
    assert capsys.readouterr().err.endswith("hint: see `fleetctl init --help`\n")


def test_the_help_offers_standard_input_only_if_the_command_reads_it(helps: dict[str, str]) -> None:
    offered = {command for command, text in helps.items() if "files, or - for standard" in " ".join(text.split())}
    assert not offered & {"watch", "ci review", "ci validate", "ci drift", "propose scale", "propose from-live"}
    assert {"plan", "apply", "validate", "ci apply"} <= offered


def test_no_summary_in_a_list_of_commands_is_cut(helps: dict[str, str]) -> None:
    texts = [run_here("--help", env={"COLUMNS": "80"}).stdout, *helps.values()]
    lists = [line for text in texts for line in text.partition("Options:")[2].partition("Examples:")[0].splitlines()]
    assert [line for line in lists if line.endswith("...")] == []


def test_no_help_has_a_stray_bracket_or_a_python_type(helps: dict[str, str]) -> None:
    odd = ("[[", "]]", "...]", "{NODE}", "(0s)", "(no limit)", "<str>", "list[", "<path>", "<int range>")
    assert [(command, one) for command, text in helps.items() for one in odd if one in text] == []


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr(entry, "_run_app", fail)


def test_tuning_variables_of_this_process_do_not_reach_demo_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "")
    monkeypatch.delenv("PYDANTIC_DISABLE_PLUGINS")
    monkeypatch.setattr(entry, "_added", set())
    monkeypatch.setattr("sys.argv", ["fleetctl", "--version"])
    monkeypatch.setattr("gc.disable", lambda: None)  # it would stay disabled for all later tests
    with pytest.raises(SystemExit):
        entry.main()
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__"
    assert entry.callers_environment()["OPENBLAS_NUM_THREADS"] == "8"
    assert "PYDANTIC_DISABLE_PLUGINS" not in entry.callers_environment()
