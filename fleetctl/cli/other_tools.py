"""Flags and commands of kubectl and Terraform, refused with our equivalent before they are taken for something else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from shlex import quote

from fleetctl.errors import UsageError

FORMATS = frozenset(("json", "jsonl", "yaml", "wide", "table", "markdown", "html", "text", "name"))
HINTS = {
    "--dry-run": "`fleetctl plan` shows what an apply would do, and changes nothing",
    "--auto-approve": "--yes proceeds without confirmation",
    "--watch": "`watch -n 10 fleetctl ...` repeats a command; an apply follows its replicas by itself",
    "--output": "--format sets the format",
    "--json": "--format json prints it as JSON",
    "--filename": "-f or --file names a fleet file",
    "--destroy": "a plan or an apply removes nothing; `fleetctl evict MODEL/ID` ends one replica",
    "-n": "--namespace names the Ray namespace",
    "--inventory": "this command needs a running cluster; `plan`, `capacity`, `what-if` and `map` take a snapshot",
}
HINTS |= {"-w": HINTS["--watch"], "-o": HINTS["--output"], "--prune": HINTS["--destroy"]}

COMMANDS = {
    "get": "`fleetctl status` shows replicas, `fleetctl inventory` nodes, `fleetctl endpoints` addresses",
    "describe": "`fleetctl status MODEL` shows replicas, `fleetctl explain FIELD` a field of the fleet file",
    "delete": "`fleetctl evict MODEL/ID` ends one replica; nothing else is ever removed",
    "rollout": "`fleetctl replace MODEL` updates a model to the file's spec; `fleetctl restart MODEL` restarts it",
    "config": "`fleetctl context list` lists clusters, `fleetctl context use NAME` chooses one",
    "lint": "`fleetctl validate` checks fleet files, `fleetctl fmt --check` their formatting",
    "help": "`fleetctl --help` lists the commands, `fleetctl COMMAND --help` explains one",
    "version": "`fleetctl --version` prints it",
    "top": "`fleetctl inventory` shows what is in use on each node",
    "ps": "`fleetctl status` shows every replica",
}
COMMANDS |= {"destroy": COMMANDS["delete"], "remove": COMMANDS["delete"], "rm": COMMANDS["delete"],
             "ls": COMMANDS["get"], "list": COMMANDS["get"], "check": COMMANDS["lint"], "nodes": COMMANDS["top"]}


def refuse_foreign_command(arguments: Sequence[str], ours: Collection[str]) -> None:
    """Raise UsageError for a command of other tools; `ours` = the commands of the group."""
    if arguments and arguments[0] in COMMANDS and arguments[0] not in ours:
        raise UsageError(f"there is no command {arguments[0]} here", hint=COMMANDS[arguments[0]])


def refuse_foreign(arguments: Sequence[str], ours: Collection[str]) -> None:
    """Raise UsageError for a long flag with one dash, a format after -o, or a flag of other tools.

    `ours` = the flags of the command. Unrefused, `-out=x` would write a file `ut=x`, and `-o json` a file `json`.
    """
    for place, argument in enumerate(arguments):
        if argument == "--":
            return
        flag, equals, value = argument.partition("=")
        long = f"-{flag}"
        if flag[:1] == "-" and flag[1:2] not in ("", "-") and len(flag) > 2 and (long in ours or long in HINTS):
            raise UsageError(f"{argument}: a long flag takes two dashes",
                             hint=quote(f"{long}{equals}{value}") if long in ours else HINTS[long])
        if flag in ours and len(flag) == 2 and equals:
            raise UsageError(f"{argument}: a short flag takes its value without =", hint=f"{flag} {quote(value)}")
        if flag in HINTS and flag not in ours:
            follows = HINTS[flag] is HINTS["--watch"] and "--follow" in ours
            raise UsageError(f"there is no flag {flag} here", hint="--follow" if follows else HINTS[flag])
        after = argument[2:] or "".join(arguments[place + 1:place + 2])
        if argument[:2] == "-o" and after in FORMATS:
            raise UsageError(f"-o names a file to write, and {after} is a format",
                             hint=f"--format {after} prints that format; -o ./{after} writes a file of this name")
