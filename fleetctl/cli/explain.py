"""`fleetctl explain`: a field of the fleet file, as its schema has it, or a code; `fleetctl schema`: a whole schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import show_report, write_document
from fleetctl.documents.names import did_you_mean, nearest
from fleetctl.documents.schemas import HOMES, Field, all_fields, below, find_fields, schema_names, schema_text
from fleetctl.errors import FleetctlError
from fleetctl.render.report.code_texts import TEXTS, code_text, help_page
from fleetctl.render.report.model import Column, Report, Table

app = command_app()
SCHEMAS = schema_names()
COLUMNS = (Column("field", "field", name=True), Column("value", "value"), Column("default", "default"),
           Column("meaning", "meaning"))


def complete_fields(incomplete: str) -> list[str]:
    """Return the paths that begin with `incomplete`, up to the next level."""
    paths = {".".join(field.path[len(home):]) for field in all_fields() for home in HOMES
             if field.path[:len(home)] == home}
    return sorted(path for path in paths if path.startswith(incomplete) and "." not in path[len(incomplete):])


@app.command(epilog=epilog(
    "fleetctl explain workers.members.resources",
    "fleetctl explain spec.policy",
    "fleetctl explain models --recursive",
    "fleetctl explain INSUFFICIENT_GPU",
    exit_codes="0 shown, 1 no such field or code, 64 usage"))
def explain(
    path: Annotated[str, typer.Argument(
        metavar="PATH", show_default=False, autocompletion=complete_fields,
        help="A dotted field path from the top, from spec or from a model, or a code. [default: the whole file]")] = "",
    recursive: Annotated[bool, typer.Option("--recursive", help="Also show the fields on all levels below.")] = False,
) -> int:
    """Describe a field of the fleet file, or a code.

    Shows the allowed value, default and meaning of a field, and the fields below it. Codes are those of reasons,
    outcomes and problems, such as INSUFFICIENT_GPU or FL065.
    """
    if path.upper() in TEXTS:
        show_report(_answer(path.upper(), {"code": path.upper(), "meaning": code_text(path.upper()),
                                           "page": help_page(path.upper())}))
        return 0
    fields = all_fields()
    if (path.isupper() or "_" in path) and "." not in path:  # but `scheduling_timeout` is schedulingTimeout
        near = nearest(path, [*TEXTS, *{name for some_field in fields for name in some_field.path}])
        if near in TEXTS:
            raise FleetctlError(f"there is no code {path}", hint=f"did you mean {near}?")
    field, *others = find_fields(fields, path)
    show_report(_report(field, below(fields, field, all_levels=recursive), others))
    return 0


def _report(field: Field, inner: list[Field], others: list[Field]) -> Report:
    depth = len(field.path)
    rows = tuple(("  " * (len(row.path) - depth - 1) + row.path[-1], row.kind, row.default, row.about) for row in inner)
    facts = {"field": field.text or "the whole file", "value": field.kind, "default": field.default,
             "meaning": field.about, "": field.mapping}
    facts["also at"] = ", ".join(other.text for other in others)
    return _answer(field.text, facts, (Table("field", "Fields", COLUMNS, rows),) if rows else ())


def _answer(about: str, facts: Mapping[str, str], tables: tuple[Table, ...] = ()) -> Report:
    heading = tuple(f"{label:7}  {text}" for label, text in facts.items() if text)
    return Report(kind="answer", identity=f"explain:{about}", title="Field", heading=heading, tables=tables,
                  conclusion="")


@app.command(epilog=epilog(
    "fleetctl schema > fleet.schema.json",
    "fleetctl schema plan",
    "# yaml-language-server: $schema=fleet.schema.json",
    exit_codes="0 printed, 1 no such document, 64 usage"))
def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(SCHEMAS)}.",
                                        autocompletion=lambda: list(SCHEMAS))] = "fleet",
) -> int:
    """Print the JSON Schema of a document.

    An editor with YAML support finds the schema by a comment at the top of a fleet file, as in the last example.
    """
    if name not in SCHEMAS:
        raise FleetctlError(f"there is no schema {name!r}",
                            hint=did_you_mean(name, SCHEMAS) or "`fleetctl schema --help` lists the names")
    write_document(schema_text(name))
    return 0
