"""The tools of `fleetctl mcp`, each the question of a command: the arguments it takes, and its answer.

A tool only reads. What it may read was fixed when the server started (`Started`): a client chooses among those
contexts, names models and git revisions, and never a path, an address or a secret. The cluster gets GETs alone.

As a program (`python -m fleetctl.cli.mcp.tools`) this module answers one question, from standard input, and ends.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fleetctl.cli import failures
from fleetctl.cli.process import this_invocation
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.documents.quantity import some
from fleetctl.errors import FleetctlError, FleetFileError, UsageError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.problem import as_utf8
from fleetctl.render.report.model import Report
from fleetctl.render.report.terminal import plain_console, print_report
from fleetctl.render.visible import visible_json, visible_lines
from fleetctl.workflow.invocation import Invocation, Where

if TYPE_CHECKING:  # each tool loads what it needs
    from fleetctl.documents.plan import Plan
    from fleetctl.workflow.planning import PlannedFleet

MOST_CHARACTERS = 60_000
"""The most of one answer: about 20,000 tokens."""
MOST_MESSAGES = 6_000
WIDTH = 120
"""The width of tables, in columns; that of a command in a pipe."""
MOST_PROBLEMS = 5


class Started(BaseModel):
    """What the server was started with: `files` of one fleet in `folder`, and where its cluster is."""

    folder: str
    files: list[str]
    contexts: list[str] = []
    inventory: str | None = None
    address: str | None = None
    namespace: str | None = None


class Question(BaseModel):
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any]
    started: Started
    limit_s: float


class Answer(BaseModel):
    """What a tool found, or an `error`, in the words of the commands; `messages` = warnings and notes beside it.

    `left_out` = what is not in the text, and how to ask for less. All but that holds text of others.
    """

    text: str
    messages: str = ""
    left_out: str = ""
    error: bool = False


def _plain(text: str) -> str:
    if as_utf8(text) != text:
        raise ValueError("is not UTF-8 text")
    return text


Text = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(_plain)]
"""One line of text: a name, a shape, a revision."""
Model = Annotated[Text, Field(description="A model key of the fleet file, such as openai-community/gpt2.")]
Form = Annotated[Literal["text", "json"], Field(
    description="text = tables as the command prints them; json = the command's document.")]
Nodes = Annotated[list[Text], Field(max_length=50)]


class Arguments(BaseModel):
    """What every tool takes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    context: Annotated[Text | None, Field(
        description="The cluster to ask, one of the contexts that this server was started with; absent = the first.")
    ] = None


class OfPlan(Arguments):
    """Arguments of `plan`."""

    models: Annotated[list[Model], Field(max_length=100, description="Plan only these models; absent = all.")] = []
    base: Annotated[Text | None, Field(
        description="A git revision, such as origin/main: also show the effect of the changes since then alone. "
                    "`REV...` = since this branch left REV.")] = None
    form: Form = "text"


class OfWhy(Arguments):
    """Arguments of `why`."""

    model: Model
    replica_id: Annotated[int | None, Field(ge=0, le=10**9, description="Only this replica; absent = all.")] = None


class OfCapacity(Arguments):
    """Arguments of `capacity`."""

    models: Annotated[list[Model], Field(max_length=100, description="Count these models of the fleet; absent = all, "
                                                                     "unless there are shapes.")] = []
    shapes: Annotated[list[Text], Field(
        max_length=20, description="Count replicas of these shapes: 8 (GPUs on one node), 0.5, 2x8 (a gang of two), or "
        "a comma-separated list of gpus=, vram=, cpus=, memory=, selector=KEY=VALUE, sameLabel=, ranksPerNode=.")] = []
    at_most: Annotated[int, Field(ge=1, le=1_000_000, description="Stop counting here.")] = 100_000
    form: Form = "text"


class OfWhatIf(Arguments):
    """Arguments of `what_if`."""

    lose_node: Annotated[Nodes, Field(description="Suppose these nodes, or those with a label KEY=VALUE, die.")] = []
    cordon: Annotated[Nodes, Field(
        description="Suppose these nodes, or those with a label KEY=VALUE, take no new replicas.")] = []
    add_node: Annotated[Nodes, Field(
        description="Suppose new nodes: 8xH200, like:NODE, or a comma-separated list of gpus=, type=, vram=, cpus=, "
                    "memory=, label=KEY=VALUE; ` xN` at the end for N such nodes.")] = []
    scale: Annotated[dict[Model, Annotated[int, Field(ge=0, le=100_000)]], Field(
        max_length=100, description="Suppose the fleet file wants this many replicas, by model.")] = {}
    each_node: Annotated[bool, Field(description="Also show for every node the effect of its loss alone.")] = False
    form: Form = "text"


class OfDiff(BaseModel):
    """Arguments of `diff`."""

    model_config = Arguments.model_config

    base: Annotated[Text, Field(description="The git revision to compare the files on disk with; `REV...` = where this "
                                            "branch left REV.")] = "HEAD"
    form: Form = "text"


class OfStatus(Arguments):
    """Arguments of `status`."""

    model: Annotated[Model | None, Field(description="Only this model; absent = all of the fleet.")] = None
    members: Annotated[bool, Field(description="Add a row for each member, with its cards.")] = False
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: what the server was started with, and the environment, with the chosen context."""

    started: Started
    invocation: Invocation

    @property
    def where(self) -> Where:
        """The cluster, or the document of --inventory."""
        return Where(self.started.inventory, self.started.address, self.started.namespace)


@dataclass(frozen=True, slots=True)
class Found:
    """A result; each form is made when it is wanted."""

    report: Callable[[], Report]
    json: Callable[[], str] = str


def plan(asked: Asked, given: OfPlan) -> Found:
    """Answer with the plan, and with a base the effect of the change alone."""
    from fleetctl.render.plan_json import render_plan_json
    from fleetctl.render.report.of_plan import plan_report

    planned = _planned(asked, given.models, given.base).shown()
    return Found(lambda: plan_report(planned), lambda: render_plan_json(planned))


def why(asked: Asked, given: OfWhy) -> Found:
    """Answer with the part of the whole plan that is about one model, and the state of its replicas."""
    from fleetctl.documents.inventory import Inventory
    from fleetctl.render.report.of_plan import plan_report, totals_line
    from fleetctl.workflow.status import Shown

    planned = _planned(asked)
    fleet, seen, number = planned.fleet, planned.inventory, given.replica_id
    running = {replica.model for replica in seen.replicas}
    key = with_key(given.model, {*fleet.labels, *running}, fleet.labels)
    if key not in fleet.labels and key not in running:
        raise FleetctlError(f"neither the fleet file nor the cluster has a model {given.model}",
                            hint=did_you_mean(given.model, {*fleet.labels, *running}))
    whole = planned.shown()
    about = plan_report(_part(whole, key, number))

    def wanted(replica_id: int | None) -> bool:
        return number in (None, replica_id)

    of_it = Inventory.model_copy(seen, update={"replicas": [
        replica for replica in seen.replicas if replica.model == key and wanted(replica.replica_id)]})
    running_now = Shown(None, key, None, wide=False).report(of_it, ())
    state = [*(one for one in running_now.tables if one.key == "replica"),
             *(one for one in Shown(fleet, key, None, wide=False).report(seen, ()).tables
               if one.key in ("failure", "cooling", "pause"))]
    return Found(lambda: replace(
        about, title=f"Why {key}", notes=(), tables=(*about.tables, *state),
        conclusion=f"{running_now.conclusion}. Of all models: {totals_line(whole)}"))


def capacity(asked: Asked, given: OfCapacity) -> Found:
    """Answer with how many more replicas fit."""
    from fleetctl.planner.questions.capacity import capacity as count
    from fleetctl.planner.questions.shape_syntax import typed_shape
    from fleetctl.render.report.of_questions import capacity_report
    from fleetctl.workflow.cluster import read_scenario

    for text in given.shapes:
        typed_shape(text)  # a typo is reported before the cluster is contacted
    scenario = read_scenario(asked.invocation, asked.started.files, asked.where)
    models = [with_key(name, scenario.fleet.labels) for name in given.models]
    answer = count(scenario, models=models, shapes=given.shapes, limit=given.at_most)
    return Found(lambda: capacity_report(answer), lambda: indented_json(answer))


def what_if(asked: Asked, given: OfWhatIf) -> Found:
    """Answer with the plan for a cluster that has lost or gained nodes."""
    from fleetctl.planner.questions.changes import Changes
    from fleetctl.planner.questions.what_if import what_if as suppose
    from fleetctl.render.report.of_questions import what_if_report
    from fleetctl.workflow.cluster import read_scenario

    supposed = Changes(tuple(given.lose_node), tuple(given.cordon), tuple(given.add_node),
                       tuple(f"{model}={count}" for model, count in given.scale.items()))
    scenario = read_scenario(asked.invocation, asked.started.files, asked.where)
    answer = suppose(scenario, supposed, each_node=given.each_node)
    return Found(lambda: what_if_report(answer), lambda: indented_json(answer))


def diff(asked: Asked, given: OfDiff) -> Found:
    """Answer with what changed in meaning between a revision and the files on disk."""
    from fleetctl.render.report.of_diff import diff_report
    from fleetctl.review.compare import compare
    from fleetctl.review.inputs import at_revision, on_disk, read_sides

    files, invocation = asked.started.files, asked.invocation
    difference = compare(*read_sides(
        at_revision(files, given.base, invocation.environ), on_disk(files), invocation.stdin))
    return Found(lambda: diff_report(difference), lambda: indented_json(difference))


def status(asked: Asked, given: OfStatus) -> Found:
    """Answer with the state of each replica of the fleet."""
    from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, with_cold_selectors
    from fleetctl.workflow.status import Shown, compared, look

    fleet = fleet_of(asked.invocation, asked.started.files)
    chosen = Shown(fleet, given.model, None, given.members, asked.started.files)
    with inventory_source(asked.invocation, asked.where, cluster_of(fleet)) as opened:
        source = with_cold_selectors(opened, fleet)
        seen, chosen = look(asked.invocation, source, chosen, verified=given.members or given.form == "json")
        outdated = compared(source, chosen, seen)
    for warning in seen.warnings:
        asked.invocation.say("warning", warning)
    if not seen.complete:
        asked.invocation.say("error", "the inventory is incomplete: there may be more than is shown")
    return Found(lambda: chosen.report(seen, outdated),
                 lambda: indented_json(seen.model_copy(update={"replicas": chosen.of(seen)})))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a client sees it. `narrower` = how to get a shorter answer; `flags` = its arguments, by the command's
    flags, which errors name.
    """

    title: str
    description: str
    takes: type[BaseModel]
    run: Callable[[Asked, Any], Found]
    narrower: str
    flags: Mapping[str, str] = field(default_factory=dict)


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
TOOLS = {
    "plan": Tool(
        "Plan", "Show what an apply would start now, on which node, what does not fit and why. Nothing is started, and "
        "no plan ever removes a replica.", OfPlan, plan, "`models` plans only some; `why` is about one model",
        {"--target": "models", "--base": "base"}),
    "why": Tool(
        "Why", "Explain one model: why its replicas are blocked, with the arithmetic by node and what would help; "
        "where new ones would run; the state and the last failures of those that run.", OfWhy, why,
        "`replica_id` shows one replica"),
    "capacity": Tool(
        "Capacity", "Count how many more replicas of the fleet's models, or of any shape, would fit, where, and what "
        "prevents one more.", OfCapacity, capacity, "`models` and `shapes` count only some",
        {"--model": "models", "--shape": "shapes", "--limit": "at_most"}),
    "what_if": Tool(
        "What if", "Show the plan for a cluster that had lost, cordoned or gained nodes, or for other numbers of "
        "replicas, compared with the plan as it is.", OfWhatIf, what_if, "suppose less at once; leave out each_node",
        {f"--{name.replace('_', '-')}": name for name in ("lose_node", "cordon", "add_node", "scale", "each_node")}),
    "diff": Tool(
        "Diff", "Show what changed in meaning in the fleet files since a git revision, and how it affects running "
        "replicas. Contacts no cluster.", OfDiff, diff, "compare with a later revision"),
    "status": Tool(
        "Status", "Show every replica of the fleet with its state, nodes, address and trouble.", OfStatus, status,
        "`model` shows one model"),
}


def schema_of(tool: Tool, started: Started) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments; `context` is in it only if there is a choice."""
    schema = tool.takes.model_json_schema()
    schema.pop("description", None)
    properties = schema["properties"]
    if "context" in properties:
        if len(started.contexts) > 1:
            properties["context"] = {"type": "string", "enum": started.contexts,
                                     "description": properties["context"]["description"]}
        else:
            del properties["context"]
    return schema


def check(tool: str, arguments: dict[str, Any], started: Started) -> BaseModel:
    """Return the arguments of a tool; raises UsageError for a tool or arguments that do not exist or are not valid."""
    if tool not in TOOLS:
        raise UsageError(f"there is no tool {tool[:100]}", hint=f"the tools are {', '.join(TOOLS)}")
    try:
        given = TOOLS[tool].takes.model_validate(arguments)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [f"{'.'.join(str(part)[:100] for part in one['loc']) or 'arguments'}: {one['msg']}"
                    for one in found]
        raise UsageError(f"{tool}: {some(problems, MOST_PROBLEMS)}",
                         hint=f"it takes {', '.join(schema_of(TOOLS[tool], started)['properties'])}") from None
    context = getattr(given, "context", None)
    if context is not None and context not in started.contexts:
        raise UsageError(f"this server was not started with a context {context}",
                         hint=f"it was started with {', '.join(started.contexts)}" if started.contexts else
                         "it was started with none; leave it out")
    return given


def answer(question: Question, invocation: Invocation) -> Answer:
    """Answer a question. Every error that the commands explain is an answer, too."""
    said: list[str] = []
    told = replace(invocation, say=lambda label, text: said.append(f"{label}: {visible_lines(text)}"), reads_only=True)
    try:
        given = check(question.tool, question.arguments, question.started)
        tool = TOOLS[question.tool]
        chosen = getattr(given, "context", None) or next(iter(question.started.contexts), None)
        asked = Asked(question.started, replace(told, context=chosen or told.context))
        found = tool.run(asked, given)
        made = Answer(text=found.json()) if getattr(given, "form", "text") == "json" else _printed(found.report())
    except FleetctlError as error:
        made = Answer(text=error_text(error, TOOLS.get(question.tool)), error=True)
    except OSError as error:
        made = Answer(text=f"error: {failures.system_sentence(error)}", error=True)
    return _bounded(made, said, question)


def error_text(error: FleetctlError, of: Tool | None = None) -> str:
    """Return an error as the commands print it, with the arguments of a tool in place of their flags.

    A hint about another flag or command is for a person: no tool can do that.
    """
    out, flags = io.StringIO(), of.flags if of else {}
    if isinstance(error, FleetFileError):
        from fleetctl.render.problems import render_problems

        render_problems(error.problems, plain_console(out, WIDTH))
    for label, text in failures.sentences(error):
        said = FLAG.sub(lambda found: flags.get(found[0], found[0]), text)
        if of and label == "hint" and ("fleetctl " in said or FLAG.search(said)):
            said = f"for a person at a command line: {said}"
        out.write(f"{label}: {visible_lines(said)}\n")
    return out.getvalue()


def _printed(report: Report) -> Answer:
    out = io.StringIO()
    print_report(report, plain_console(out, WIDTH))
    return Answer(text=out.getvalue())


def _bounded(made: Answer, said: Sequence[str], question: Question) -> Answer:
    """Return the answer within its limits: a text is cut between two lines, and a document is whole or left out."""
    narrower = TOOLS[question.tool].narrower if question.tool in TOOLS else ""
    text, left_out = made.text, ""
    if len(text) > MOST_CHARACTERS and question.arguments.get("form") == "json" and not made.error:
        text = (f"error: the document has {len(text)} characters, and an answer at most {MOST_CHARACTERS}\n"
                f"hint: ask for text; {narrower}\n")
        made = Answer(text=text, error=True)
    elif len(text) > MOST_CHARACTERS:
        end = text.rfind("\n", 0, MOST_CHARACTERS) + 1 or MOST_CHARACTERS
        lines = text.count("\n", end)
        left_out = f"{lines} more lines were left out; {narrower}"
        text = text[:end]
    beside = "\n".join(dict.fromkeys(said))
    if len(beside) > MOST_MESSAGES:
        beside = f"{beside[:MOST_MESSAGES]}... ({len(beside) - MOST_MESSAGES} more characters)"
    return made.model_copy(update={"text": visible_json(text), "messages": visible_json(beside), "left_out": left_out})


def _planned(asked: Asked, models: Sequence[str] = (), base: str | None = None) -> PlannedFleet:
    from fleetctl.planner.options import PlanOptions
    from fleetctl.workflow.planning import plan_fleet

    loaded = inspect_fleet(asked.started.files)
    loaded.sound()
    before = None
    if base is not None:
        from fleetctl.review.inputs import load_base

        before = load_base(asked.started.files, base, asked.invocation.environ)
    options = PlanOptions(targets=tuple(models), files=tuple(asked.started.files))
    return plan_fleet(asked.invocation, loaded, options, asked.where, base=before)


def _part(plan: Plan, key: str, number: int | None) -> Plan:
    """Return what a plan says about one model, or one replica of it; its totals stay those of the whole."""
    def of_it(items: Sequence[Any]) -> Iterator[Any]:
        return (item for item in items if item.model == key and number in (None, getattr(item, "replica_id", number)))

    def of_fleet_or_it(items: Sequence[Any]) -> list[Any]:
        return [item for item in items if item.model in (None, key)]

    return plan.model_copy(update={
        "models": [row for row in plan.models if row.key == key],
        "growth": [one for one in plan.growth if any(row.model == key for row in one.replicas)],
        "policy": of_fleet_or_it(plan.policy), "notes": of_fleet_or_it(plan.notes),
        "file_warnings": of_fleet_or_it(plan.file_warnings),
        **{name: list(of_it(getattr(plan, name)))
           for name in ("actions", "after_pilot", "holds", "blocked", "drift", "unmanaged", "lost")}})


def main() -> None:
    """Answer the question on standard input; whatever else is printed goes to standard error."""
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    question = Question.model_validate_json(sys.stdin.buffer.read())
    signal.setitimer(signal.ITIMER_REAL, question.limit_s)  # its default action ends a process that nobody waits for
    os.chdir(question.started.folder)
    try:
        made = answer(question, this_invocation())
    except Exception as error:  # noqa: BLE001  last resort, as for a command: a sentence, and a report on this machine
        failures.explain_unexpected(error)
        made = Answer(text=f"error: {failures.unexpected_sentence(error)}", error=True)
    wire.write(made.model_dump_json().encode())
    wire.close()


if __name__ == "__main__":
    main()
