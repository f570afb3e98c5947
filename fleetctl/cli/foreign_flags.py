"""What hands type for kubectl and Terraform: refused, with the flag of ours, before it is taken for something else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetctl.errors import UsageError

FORMATS = frozenset(("json", "jsonl", "yaml", "wide", "table", "markdown", "html", "text", "name"))
HINTS = {
    "--dry-run": "`fleetctl plan` shows what an apply would do, and changes nothing",
    "--auto-approve": "--yes goes ahead without a question",
    "--watch": "`watch -n 10 fleetctl ...` shows a command again and again; an apply follows its replicas by itself",
    "--output": "--format names the format",
    "--filename": "-f or --file names a fleet file",
    "--destroy": "nothing is removed by a plan or an apply; `fleetctl evict MODEL/ID` ends one replica",
    "-n": "--namespace names the Ray namespace",
}
HINTS |= {"-w": HINTS["--watch"], "-o": HINTS["--output"], "--prune": HINTS["--destroy"]}


def refuse_foreign(arguments: Sequence[str], ours: Collection[str]) -> None:
    """Raise UsageError for a long flag with one dash, a format after -o, or a flag that only other tools have.

    `ours` = the flags of the command. `-out=x` would write a file `ut=x`, and `-o json` a file `json`.
    """
    for place, argument in enumerate(arguments):
        if argument == "--":
            return
        flag, equals, value = argument.partition("=")
        long = f"-{flag}"
        if flag[:1] == "-" and flag[1:2] not in ("", "-") and len(flag) > 2 and (long in ours or long in HINTS):
            raise UsageError(f"{argument}: a flag of more than one letter takes two dashes",
                             hint=f"{long}{equals}{value}" if long in ours else HINTS[long])
        if flag in ours and len(flag) == 2 and equals:
            raise UsageError(f"{argument}: a flag of one letter takes its value without =", hint=f"{flag} {value}")
        if flag in HINTS and flag not in ours:
            follows = HINTS[flag] is HINTS["--watch"] and "--follow" in ours
            raise UsageError(f"there is no flag {flag} here", hint="--follow" if follows else HINTS[flag])
        after = argument[2:] or "".join(arguments[place + 1:place + 2])
        if argument[:2] == "-o" and after in FORMATS:
            raise UsageError(f"-o names a file to write, and {after} is a format",
                             hint=f"--format {after} prints it; -o ./{after} writes a file of this name")
