"""Completion in a real bash, called as readline calls it: words end at `:` and `=`, which model keys may contain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from in_process import run_here
from model_keys import NDIF_KEY

from fleetctl.cli.completion import SCRIPTS

DRIVER = r"""
source /dev/stdin <<<"$SCRIPT"
compopt() { NOSPACE=1; }  # a builtin that works only below readline
_split_as_readline_does() {
    local rest=$1 quote='' word='' char
    COMP_WORDS=()
    while [[ -n $rest ]]; do
        char=${rest:0:1} rest=${rest:1}
        if [[ $char == \\ && $quote != \' ]]; then
            word+=$char${rest:0:1} rest=${rest:1}
        elif [[ -n $quote ]]; then
            word+=$char; [[ $char == "$quote" ]] && quote=''
        elif [[ $char == [\'\"] ]]; then
            quote=$char word+=$char
        elif [[ $char == [[:space:]] ]]; then
            [[ -n $word ]] && COMP_WORDS+=("$word"); word=''
        elif [[ $COMP_WORDBREAKS == *"$char"* ]]; then
            [[ -n $word ]] && COMP_WORDS+=("$word"); COMP_WORDS+=("$char"); word=''
        else
            word+=$char
        fi
    done
    [[ -n $word || $1 == *[[:space:]] ]] && COMP_WORDS+=("$word")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
}
COMP_WORDBREAKS=$WORDBREAKS COMP_LINE=$1 COMP_POINT=${#1}
_split_as_readline_does "$1"
_fleetctl fleetctl
printf '%s\0' "${COMPREPLY[@]}" "nospace=$NOSPACE"
"""
KEYS = ("org/m:7b-it", "org/m:70b", "org/n", "x/$(id>owned)", "y/*", "z/it's", NDIF_KEY)

ESCAPED = NDIF_KEY.partition(":")[2].translate({ord(char): f"\\{char}" for char in '{}", '})
"""The key after its first colon, as bash writes it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a fleet file, and a `fleetctl` on the path that records its environment and prints an answer."""
    models = "".join(f"  - {{key: {json.dumps(key)}, replicas: 1, labels: {{team: {key[0]}}}, shape: one}}\n"
                     for key in KEYS)
    (tmp_path / "fleet.yaml").write_text(
        "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  shapes:\n    one: "
        f"{{workers: [{{name: main, members: [{{resources: {{gpus: 1}}, engine: {{command: [x]}}}}]}}]}}\n"
        f"  models:\n{models}")
    program = tmp_path / "bin" / "fleetctl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nenv -0 > "$HOME/asked"\ncat "$HOME/answer"\n')
    program.chmod(0o755)
    (tmp_path / "answer").touch()
    return tmp_path


def complete(folder: Path, line: str, wordbreaks: str = " \t\n\"'><=;|&(:") -> tuple[list[str], bool]:
    """What bash would offer in place of the end of `line`, and whether it omits the space.

    Bash runs twice: first to get its request, which this process answers, then to get the offers from the answer.
    """
    ask_bash(folder, line, wordbreaks)
    environ = dict(pair.split("=", 1) for pair in (folder / "asked").read_text().split("\0") if pair)
    answer = run_here(env=environ, folder=folder)
    (folder / "answer").write_text(answer.stdout)
    return ask_bash(folder, line, wordbreaks)


def ask_bash(folder: Path, line: str, wordbreaks: str) -> tuple[list[str], bool]:
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "SCRIPT": SCRIPTS["bash"],
               "WORDBREAKS": wordbreaks}
    done = subprocess.run(["bash", "--norc", "-c", DRIVER, "bash", line], cwd=folder, env=environ, check=True,
                          capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    *replies, nospace = done.stdout.removesuffix("\0").split("\0")
    return [reply for reply in replies if reply], nospace == "nospace=1"


@pytest.mark.parametrize(("typed", "offered"), [
    ("--target org/n", ["org/n"]),
    ("--target org/m:7", ["7b-it", "70b"]),
    ("--target org/m:", ["7b-it", "70b"]),
    ("--target=org/m:70", ["70b"]),
    ("--target=org/n", ["org/n"]),
    ("--exclude org/m:7b", ["7b-it"]),
    ('--target "org/m:7', ["org/m:7b-it", "org/m:70b"]),
    ("--target x", [r"x/\$\(id\>owned\)"]),
    ("--target y", [r"y/\*"]),
    ("--target z", [r"z/it\'s"]),
    ('--target "z', ["z/it's"]),
    ("--target 'z", [r"z/it'\''s"]),
    ('--target "x', [r"x/\$(id>owned)"]),
    ("--target Lang", [rf"LanguageModel:{ESCAPED}"]),
    ("--target LanguageModel:", [ESCAPED]),
    (r"--target LanguageModel:\{\"repo_id\":", [ESCAPED.partition(":")[2]]),
    (r"--target LanguageModel:\{\"repo_id\":\ \"open", [ESCAPED.partition(":")[2]]),
    ("--target 'Lang", [NDIF_KEY]),
    ("--target '" + NDIF_KEY[:26], [NDIF_KEY]),
    ("--target '" + NDIF_KEY[:30], [NDIF_KEY]),
    ('--target "LanguageModel:{', [NDIF_KEY.replace('"', '\\"')]),
    ("--target nobody", []),
    ("--selector te", ["team=L", "team=o", "team=x", "team=y", "team=z"]),
    ("-l team=x", ["x"]),
])
def test_a_reply_completes_the_text_after_the_last_word_break(
    folder: Path, typed: str, offered: list[str]
) -> None:
    assert complete(folder, f"fleetctl plan -f fleet.yaml {typed}") == (offered, False)
    assert not (folder / "owned").exists()


def test_nothing_is_cut_if_a_colon_is_not_a_word_break(folder: Path) -> None:
    line = "fleetctl plan -f fleet.yaml --target org/m:70"
    assert complete(folder, line, wordbreaks=" \t\n\"'><=;|&(")[0] == ["org/m:70b"]


@pytest.mark.parametrize("verb", ["evict", "logs"])
def test_a_replica_completes_to_its_model_and_a_slash(folder: Path, verb: str) -> None:
    assert complete(folder, f"fleetctl {verb} --file fleet.yaml org/m:70") == (["70b/"], True)


def test_commands_and_flags_are_offered(folder: Path) -> None:
    assert complete(folder, "fleetctl capa")[0] == ["capacity"]
    assert complete(folder, "fleetctl plan --detailed")[0] == ["--detailed-exitcode"]


def test_a_broken_file_offers_nothing_and_prints_nothing(folder: Path) -> None:
    (folder / "fleet.yaml").write_text("a: [")
    assert complete(folder, "fleetctl plan -f fleet.yaml --target o") == ([], False)


def test_fields_are_offered_level_by_level(folder: Path) -> None:
    assert complete(folder, "fleetctl explain spec.m")[0] == ["spec.models"]
    assert complete(folder, "fleetctl explain models.up")[0] == ["models.update"]
    assert complete(folder, "fleetctl explain models.update.")[0] == [
        f"models.update.{name}" for name in ("mode", "reload", "surge")]


def test_propose_offers_the_keys_of_its_files(folder: Path) -> None:
    assert complete(folder, "fleetctl propose scale -f fleet.yaml org/n")[0] == ["org/n"]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("line", "answer", "offered"), [
    ("fleetctl plan --format ", "json\tx\njsonl\n", ["json\tx", "jsonl"]),
    ("fleetctl plan --format=j", "json\njsonl\n", ["--format=json", "--format=jsonl"]),
    ("fleetctl plan -f fl", "", ["fleet.yaml"]),
    ("fleetctl plan --file=fl", "", ["--file=fleet.yaml"]),
])
def test_fish_offers_files_only_if_there_is_nothing_else(
        folder: Path, line: str, answer: str, offered: list[str]) -> None:
    (folder / "answer").write_text(answer)
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(["fish", "-c", f"{SCRIPTS['fish']}\ncomplete -C $argv[1]", line], cwd=folder, env=environ,
                          check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == offered


# builtins that zsh has only inside its line editor, replaced by ones that print their arguments
ZSH_DRIVER = r"""
compdef() { }
compset() { print -r -- compset "$@" }
compadd() { print -r -- compadd ${@[1,-2]} ${(P)@[-1]} }
_files() { print -r -- files }
source /dev/stdin <<<"$SCRIPT"
words=(fleetctl plan "$@") CURRENT=$(($# + 2)) PREFIX=${@[-1]}
_fleetctl
"""


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "answer", "offered"), [
    (["--format", "j"], "json\tx\njsonl\n", ["compadd -a json jsonl"]),
    (["--format=j"], "json\njsonl\n", ["compset -P 1 *=", "compadd -a json jsonl"]),
    (["--target", "o"], "org/\n", ["compadd -S -a org/"]),
    (["--file=fl"], "", ["compset -P 1 *=", "files"]),
])
def test_zsh_offers_files_only_if_there_is_nothing_else(
        folder: Path, typed: list[str], answer: str, offered: list[str]) -> None:
    (folder / "answer").write_text(answer)
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "SCRIPT": SCRIPTS["zsh"]}
    done = subprocess.run(["zsh", "-f", "-c", ZSH_DRIVER, "zsh", *typed], cwd=folder, env=environ, check=True,
                          capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(run_cli, shell: str) -> None:
    done = run_cli("completion", shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, SCRIPTS[shell], "")


@pytest.mark.parametrize(("arguments", "message"), [
    ((), "error: Missing argument 'SHELL'. Choose from: bash, zsh, fish\n"),
    (("tcsh",), "error: Invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish'.\n"),
])
def test_an_unknown_shell_is_refused_with_the_known_ones(run_cli, arguments: tuple[str, ...], message: str) -> None:
    done = run_cli("completion", *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == f"{message}hint: see `fleetctl completion --help`\n"


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_the_script_has_no_syntax_error_for_its_shell(shell: str) -> None:
    done = subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_script_evaluates_its_replies() -> None:
    for script in SCRIPTS.values():
        assert "eval" not in script.replace("evaluated", "")
