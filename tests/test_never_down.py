"""Never down, read from the code: everything that can end a process or replica is in one list, with its reason."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from source_code import PACKAGE, ROOT, listed, nodes_of, parsed, place, sources

from fleetctl.documents.plan import Action, Plan

ENDING = {
    "__ray_terminate__", "_exit", "abort", "drain_node", "end_processes", "exit_actor", "kill", "kill_tree", "killpg",
    "pidfd_send_signal", "pthread_kill", "remove_placement_group", "send_signal", "shutdown", "signal_all", "take_back",
    "terminate", "tgkill",
}
"""Names that end a process, an actor or a placement group, wherever they are mentioned."""

ENDING_CALLS = {"cancel", "delete", "patch", "stop"}
"""Names that also have harmless meanings: these count only if they are called."""

ENDING_TEXT = re.compile(r"^(DELETE|PATCH|stop)$|/stop\b|\bray (?:job )?stop\b|\bpkill\b|\bkillall\b|\bkill -")

ALLOWED = {
    "child.py": {
        "Child.end": "a program that this process has started itself, in a session of its own: git, a plan",
    },
    "fleetfile/rule_process.py": {
        "_answer": "its own process, once the house rules are checked",
    },
    "sizing/describe.py": {"_each": "its own threads, which read the headers of a model's files"},
    "sizing/origins.py": {
        "Http.close": "its own connections to where a model's files are, once their headers are read",
        "Http._shut_down": "its own connections to where a model's files are, also after a quarter of an hour",
    },
    "agent/__main__.py": {"<module>": "the job's own process, when its summary is written"},
    "agent/attempt.py": {
        "<module>": "imports what takes back",
        "Attempt._await_grant": "takes back what this run created a moment ago and Ray granted nothing",
    },
    "agent/caches/software.py": {
        "printed_version": "the command of `engine.version` that it has just started itself, in a session of its own",
    },
    "agent/cards.py": {
        "_NodeSearch._end": "its own holders: actors without a name that hold a card and run nothing",
    },
    "agent/create.py": {
        "take_back": "ends only a CreatedHere, which only create() builds",
    },
    "agent/evict.py": {
        "Evict._end_all": "the explicit verb: ends the replicas it names",
        "RestartTask._restart": "the explicit verb: ends the replicas it names, and Ray starts each again",
    },
    "agent/warm.py": {
        "Demotion._take_back": "the explicit verb: a WARM replica that it has just created for one that stays HOT",
        "WarmReplica._watch": "its own process, when a part of it on another node has ended; Ray restarts it",
        "WarmReplica.leave": "itself, when its HOT replica is ready or an eviction asks it to leave",
    },
    "agent/leftovers.py": {
        "<module>": "imports what removes a placement group",
        "remove_group": "the explicit verb: a placement group of ours whose creator is dead, agreed to by its id",
        "_signal": "the explicit verbs: an engine without a living replica, agreed to; or a process named to end",
    },
    "agent/member.py": {
        "MemberSeat.end_engine": "the member's own engine, when an eviction asks its replica to leave",
    },
    "agent/engine.py": {
        "EngineProcess.stop": "the engine's own processes",
        "EngineProcess._watch_run": "an engine whose liveness probe fails is down; Ray restarts the replica",
    },
    "agent/report.py": {
        "exit_in": "the replica's own process, when its engine has ended, a restart failed, or it was evicted",
    },
    "agent/guarded.py": {
        "GuardedProcess._follow": "the engine's own processes, when its supervisor was killed",
        "GuardedProcess.stop": "the engine's own processes",
    },
    "agent/probes.py": {"exec_check": "the probe's own process, when it did not answer in time"},
    "agent/gang.py": {
        "<module>": "imports what gives back a placement group",
        "GangCoordinator._give_back": "its own placement group: its start failed, cards are in use, or an earlier life",
        "GangCoordinator._end_members": "its own members, when its start or one of them failed, or cards are in use",
        "GangMember._follow": "the member's own engine, when it did not become ready",
    },
    "agent/replica.py": {
        "ModelActor._start": "the replica's own engine, when it did not become ready",
        "ReplicaActor._end_permanently": "itself: its start failed and Ray does not let it leave, or it was evicted "
                                         "and the eviction has not ended it",
        "ReplicaActor._end_with_engines": "the replica's own process, when an engine of it has ended",
        "ReplicaActor._require_published_repr": "the replica's own process, whose place nothing else can know",
        "ReplicaActor._watch_record": "the replica's own process, when Ray has ended its actor",
    },
    "agent/supervisor.py": {
        "signal_all": "processes below the engine's guard",
        "kill_tree": "processes below the engine's guard",
        "become_guard": "itself, when its parent has gone",
        "guard": "the engine, or the inner guard, when its period is over",
        "run_inner.tell": "the engine, when its guard was told to",
        "run_inner": "the engine, when its guard was told to, and what that has left behind",
        "main": "the engine, through the inner guard, and what that has left behind",
        "exit_like": "itself",
        "run_engine": "itself, when the engine cannot be started",
        "Actor._ask": "itself, a question that could not be asked",
        "Actor.end": "the actor's process, which hangs, after Ray has ended the actor",
    },
    "agent/weights/connections.py": {"Listener.stop": "connections of receivers of weights, not an engine's"},
    "agent/weights/serve.py": {
        "WeightsServer.close": "its own listener, when new weights may be served only at other ports, or at none",
    },
    "apply/explicit.py": {
        "run_explicit": "stops an interrupted restart, and an interrupted eviction before it ended anything",
    },
    "apply/node_jobs.py": {
        "prefetch": "stops the job of a prefetch that was interrupted; it only fetches",
    },
    "apply/old_runs.py": {
        "_delete": "Ray's record of a run that has ended; Ray refuses it for one that has not, and ends nothing",
    },
    "apply/jobs.py": {
        "stop": "stops a job of the agent, never a replica",
    },
    "apply/follow.py": {
        "RunFollower.stop": "stops a job of the agent, never a replica",
    },
    "apply/run.py": {
        "follow": "the first Ctrl-C stops the job; what it created goes on",
    },
    "apply/standby.py": {
        "hand_over": "the job of an agent that waits and does not take the plan that it is handed",
    },
    "cli/app.py": {"<module>": "the name of the command that stops an apply"},
    "cli/commands.py": {"<module>": "the names of other tools' commands, for a hint"},
    "cli/console.py": {"end_with_reader.wait": "itself, when nobody reads what it follows"},
    "cli/entry.py": {"main": "itself, when it was interrupted"},
    "cli/mcp/server.py": {
        "Serving._answered": "its own wait, once the answer is there",
        "_Out.write": "its own waits: the client of this server has gone",
    },
    "cli/signals.py": {"_end": "itself, at a signal"},
    "cli/stop.py": {"_stop": "`fleetctl stop` stops the job of an apply; what it created goes on"},
    "cli/watch_server.py": {"LimitedServer._end": "a connection to the page of a watch",
                            "serving": "its own HTTP server, at the end of the watch"},
    "inventory/access.py": {"_look_up": "the timer that would have reported the wait"},
    "fleetfile/resolved.py": {"<module>": "the name of a field: how an engine is ended"},
    "importers/container.py": {"<module>": "the name of a field: how an engine is ended"},
    "importers/objects.py": {"engine_of_pod": "the name of a field: how an engine is ended"},
    "planner/actions.py": {"_member": "the name of a field: how an engine is ended, once an explicit verb does that"},
    "forge/forges.py": {
        "GitHub._thread": "the text of a comment on a pull request, by HTTP's word for it",
        "GitHub._issues": "the text of an issue, by HTTP's word for it",
        "GitHub._proposals": "the text of a pull request, by HTTP's word for it",
    },
    "render/apply_progress.py": {
        "LiveProgress.__exit__": "stops drawing",
    },
    "demo/*": {
        "*": "the demo's own cluster and stub engines, found by its mark",
    },
}

Mention = tuple[str, int, str]


def mentions(tree: ast.Module) -> Iterator[Mention]:
    """Yield (function, line, what) for everything in a file that can end something."""
    yield from _walk(tree, "<module>")


def _walk(node: ast.AST, where: str) -> Iterator[Mention]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _walk(child, child.name if where == "<module>" else f"{where}.{child.name}")
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring does nothing
        what = _ending(child)
        if what:
            yield where, child.lineno, what
        yield from _walk(child, where)


def _ending(node: ast.AST) -> str | None:
    if isinstance(node, (ast.Attribute, ast.Name)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return name if name in ENDING else None
    if isinstance(node, ast.alias):
        return node.name if node.name.rpartition(".")[2] in ENDING else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr if node.func.attr in ENDING_CALLS else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value in ENDING or ENDING_TEXT.search(node.value) else None
    return None


SOURCES = [path for path in sources() if PACKAGE / "demo" not in path.parents]


def test_everything_that_can_end_something_is_in_the_list() -> None:
    new, found = [], set()
    for path in SOURCES:
        name = str(path.relative_to(PACKAGE))
        for where, line, what in mentions(parsed(path)):
            found.add((name, where))
            if where not in ALLOWED.get(name, {}):
                new.append(f"{place(path, line)} {what!r} in {where}")
    assert not new, listed("this can end something: is it never on the way from plan to apply? Then add it, with its "
                           "reason", new)
    gone = [f"{name}: {where}" for name, reasons in ALLOWED.items() for where in reasons
            if name != "demo/*" and (name, where) not in found]
    assert not gone, listed("the list has entries for code that no longer exists", gone)


@pytest.mark.parametrize("snippet", [
    "ray.kill(actor)", "ray.kill(actor, no_restart=True)", "end = ray.kill", "from ray import kill", "os.kill(1, 9)",
    "os.killpg(1, 9)", "process.terminate()", "process.send_signal(15)", "subprocess.Popen(['x']).kill()",
    "ray.util.remove_placement_group(group)", "from ray.util.placement_group import remove_placement_group",
    "from ray.util.placement_group import remove_placement_group as tidy", "ray.actor.exit_actor()",
    "handle.__ray_terminate__.remote()", "getattr(handle, '__ray_terminate__')", "ray.cancel(ref)", "ray.shutdown()",
    "client.request('DELETE', '/api/jobs/x')", "client.delete('/api/jobs/x')", "client.request('PATCH', path)",
    "client.request('POST', f'/api/jobs/{job}/stop')", "jobs.stop(client, job)", "subprocess.run(['pkill', 'vllm'])",
    "subprocess.run(['ray', 'stop'])", "os.system('kill -9 1')", "os._exit(1)", "signal.pthread_kill(1, 9)",
    "take_back(found)", "def f():\n def g():\n  ray.kill(x)", "lambda: os.kill(1, 9)",
    "class A:\n async def f(self):\n  await x.terminate()",
    "@ray.kill\ndef f(): pass", "def f(end=ray.kill): pass",
])
def test_an_ending_is_found_wherever_it_is_written(snippet: str) -> None:
    assert list(mentions(ast.parse(snippet))) != []


@pytest.mark.parametrize("snippet", [
    '"""Kill nothing; ray.kill is only a word here."""', "def f():\n 'os.kill'\n", "stop = threading.Event()",
    "if run.stop.is_set(): pass", "killed = 3", "x = 'it was killed'", "client.request('POST', '/api/jobs/')",
])
def test_words_without_effect_are_no_ending(snippet: str) -> None:
    assert list(mentions(ast.parse(snippet))) == []


def test_the_start_script_ends_nothing() -> None:
    script = (PACKAGE / "agent" / "start.sh").read_text()
    assert re.findall(r"\b(?:kill|pkill|killall|stop)\b", script) == []


def calls(path: Path, name: str) -> list[tuple[str, ast.Call]]:
    """Every call of `name` in a file, with its function."""
    return [(function, call) for function, call in _calls_in(path)
            if getattr(call.func, "id", None) == name or getattr(call.func, "attr", None) == name]


@cache
def _calls_in(path: Path) -> list[tuple[str, ast.Call]]:
    return [(function.name, node) for function in nodes_of(path) if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function) if isinstance(node, ast.Call)]


def test_only_create_builds_a_created_here() -> None:
    builders = [(path.name, function) for path in SOURCES for function, _ in calls(path, "CreatedHere")]
    assert builders == [("create.py", "create")]


def test_only_replicas_created_here_can_be_taken_back() -> None:
    """The one call takes back what its attempt has created, which is set in one place from the result of create()."""
    takers = [(path.name, function, call.args) for path in SOURCES for function, call in calls(path, "take_back")]
    [(file, function, [argument])] = takers
    assert (file, function, ast.unparse(argument)) == ("attempt.py", "_await_grant", "created")
    assert assigned_in_attempt("created") == {
        "_await_grant": ["self.created"], "_check": ["create(self.replica, self._context.view)"]}
    assert assigned_in_attempt("self.created") == {"__init__": ["None"], "_check": ["created"]}


def test_a_search_for_clean_cards_ends_only_the_holders_it_created() -> None:
    """The holders are those that `_take_one` made of CardHolder, which starts nothing; no other handle gets in."""
    path = PACKAGE / "agent" / "cards.py"
    assert [ast.unparse(call.args[0]) for _, call in calls(path, "_end")] == [
        "[holder for holder in self._holders if holder not in self._dirty]", "self._holders"]
    assert [(function, ast.unparse(call)) for function, call in calls(path, "append")
            if "self._holders.append" in ast.unparse(call)] == [("_take_one", "self._holders.append(holder)")]
    [(_, options)] = calls(path, "options")
    assert ast.unparse(options.func) == "ray.remote(CardHolder).options"
    assert {word.arg for word in options.keywords} == {"num_cpus", "num_gpus", "max_restarts", "scheduling_strategy"}
    assert not calls(path, "get_actor")


def assigned_in_attempt(target: str) -> dict[str, list[str]]:
    """The values assigned to a name in the agent's attempts, by function, except functions that take nothing back."""
    tree = ast.parse((PACKAGE / "agent" / "attempt.py").read_text())
    found: dict[str, list[str]] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(
                node, (ast.AnnAssign, ast.AugAssign)) else []
            names = [(name, getattr(node, "value", None)) for one in targets
                     for name in (one.elts if isinstance(one, ast.Tuple) else [one])]
            for number, (name, value) in enumerate(names):
                if ast.unparse(name) == target and value is not None:
                    chosen = value.elts[number] if isinstance(value, ast.Tuple) else value
                    found.setdefault(function.name, []).append(ast.unparse(chosen))
    found.pop("_await_group", None)  # takes nothing back
    return found


def modules_reached(start: str) -> set[str]:
    """All fleetctl modules that importing `start` can load, including imports inside functions."""
    seen, todo = set(), [start]
    while todo:
        module = todo.pop()
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        if module in seen or not path.exists():
            continue
        seen.add(module)
        package = module.rpartition(".")[0]
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package if node.level else ""
                target = ".".join(part for part in (base, node.module) if part)
                todo += [target, *(f"{target}.{alias.name}" for alias in node.names)]
    return seen


@pytest.mark.parametrize("start", [
    "fleetctl.agent.apply", "fleetctl.apply.run", "fleetctl.cli.apply", "fleetctl.cli.plan",
    "fleetctl.cli.scale", "fleetctl.cli.nodes", "fleetctl.cli.ci.apply", "fleetctl.cli.ci.review",
    "fleetctl.cli.watch", "fleetctl.watch.watcher",
    "fleetctl.planner.plan", "fleetctl.workflow.proposal", "fleetctl.cli.mcp.command",
])
def test_the_code_of_an_apply_never_imports_an_explicit_verb(start: str) -> None:
    reached = modules_reached(start)
    assert len(reached) > 5
    verbs = re.compile(r"evict|restart|repair|explicit|drain|replace|rollout|prune|agent\.(warm|ending|leftovers)")
    assert [module for module in reached if verbs.search(module)] == []


def test_a_warm_replica_ends_by_itself_or_by_the_explicit_verb() -> None:
    """An apply only compares the name of a WARM replica; only the replica itself and the verb ask it to leave.

    A gang asks its own members.
    """
    assert {(path.name, function) for path in SOURCES for function, _ in calls(path, "warm_name")} == {
        ("create.py", "check"), ("warm.py", "gone"), ("warm.py", "_find_earlier_warm"), ("warm.py", "_create")}
    named = {path.name for path in SOURCES if "warm_name" in path.read_text()}
    assert named == {"report.py", "create.py", "warm.py", "evict.py"}
    found = [(path.name, function, ast.unparse(call)) for path in SOURCES if PACKAGE / "agent" in path.parents
             for function, call in calls(path, "get_actor")]
    hot = "ray.get_actor(actor_name(self._replica.model, self._replica.replica_id))"
    assert ("warm.py", "_is_unneeded", hot) in found
    leaving = {(path.name, function) for path in SOURCES for function, call in calls(path, "remote")
               if ast.unparse(call.func).endswith("leave.remote")}
    assert leaving == {("warm.py", "_leave_if_unneeded"), ("evict.py", "__init__"), ("gang.py", "_end_engines")}


def test_imports_inside_functions_are_followed() -> None:
    assert "fleetctl.agent.warm" in modules_reached("fleetctl.agent.__main__")
    assert "fleetctl.agent.evict" in modules_reached("fleetctl.agent.__main__")
    assert "fleetctl.agent.leftovers" in modules_reached("fleetctl.agent.__main__")
    for verb in ("explicit", "drain", "replace", "rollout", "ci.rollout"):
        assert "fleetctl.apply.explicit" in modules_reached(f"fleetctl.cli.{verb}")
    assert "fleetctl.workflow.replace" in modules_reached("fleetctl.cli.replace")


def test_replace_and_rollout_end_only_by_the_explicit_verb() -> None:
    """Their rounds decide, and one call of `act_on` acts, on replicas that only their steps name."""
    acting = {(path.name, function, ast.unparse(call.args[3])) for path in SOURCES for function, call in
              calls(path, "act_on")}
    assert acting == {("drain.py", "_let_go", "end"), ("replace.py", "end_replicas", "replicas"),
                      ("explicit.py", "_carry_out", "chosen"), ("explicit.py", "act", "chosen")}
    ending = [(path.name, function, ast.unparse(call.args[0])) for path in SOURCES for function, call in
              calls(path, "end_replicas")]
    assert ending == [("replace.py", "_rounds", "[replica]"), ("rollout.py", "_end", "replicas")]
    assert [path.name for path in SOURCES if PACKAGE / "cli" in path.parents and calls(path, "run_explicit")] == [
        "explicit.py"]


def test_a_rollout_ends_only_by_the_explicit_verb_and_what_the_rounds_of_replace_name() -> None:
    [(_, added)] = [one for one in calls(PACKAGE / "cli" / "rollout.py", "append") if "replicas" in ast.unparse(one[1])]
    assert ast.unparse(added) == "replicas.append(replica)"
    [(chooses, _)] = calls(PACKAGE / "cli" / "rollout.py", "next_to_end")
    assert chooses == "_end"
    using = {str(path.relative_to(PACKAGE)) for path in SOURCES if calls(path, "roll_out")}
    assert using == {"cli/rollout.py", "cli/ci/rollout.py"}


def test_only_the_doctor_repairs_and_only_after_a_question() -> None:
    """Each kind is removed by one call, only below the verb; the client asks before it, and an agent checks again."""
    for name, above in (("remove_group", "run_repair"), ("end_orphans", ""), ("_signal", "signalled")):
        assert [function for path in SOURCES for function, _ in calls(path, name)] == [above] * bool(above)
    agent = {path.name for path in SOURCES if "end_orphans" in path.read_text()}
    assert agent == {"leftovers.py"}
    assert [function for function, _ in calls(PACKAGE / "cli" / "doctor.py", "repair")] == ["_repaired", "remove"]
    [(asking, question)] = calls(PACKAGE / "cli" / "doctor.py", "perform")
    assert (asking, ast.unparse(question.args[0])) == ("_repaired", "remove")


def test_only_the_frame_of_the_verbs_asks_and_it_asks_before_it_acts() -> None:
    asking = [(path.name, function) for path in SOURCES for function, _ in calls(path, "confirm")]
    assert asking == [("apply_run.py", "offer_new_plan"), ("verb.py", "perform")]
    frame = PACKAGE / "cli" / "verb.py"
    [(_, question)], [(function, act)] = calls(frame, "confirm"), calls(frame, "act")
    assert function == "perform"
    assert question.lineno < act.lineno


def test_a_plan_has_no_operation_that_ends_anything() -> None:
    """A reload is a request to a running engine; its operation is not in the list of what can end something."""
    operations = ("create", "promote", "reload", "prefetch")
    assert get_args(Action.model_fields["op"].annotation) == operations
    schema = json.loads((ROOT / "schemas" / "plan.schema.json").read_text())
    assert schema["$defs"]["Action"]["properties"]["op"]["enum"] == [*operations]
    lists = {name for name, field in Plan.model_fields.items() if "list[" in str(field.annotation)}
    assert lists == {"models", "actions", "holds", "blocked", "drift", "unmanaged", "lost", "policy", "notes",
                     "file_warnings", "growth", "autoscaler", "after_pilot"}
    assert not [name for name in ALLOWED if "reload" in name]


def test_only_one_module_requests_nodes() -> None:
    """Ray adds nodes that are missing from its one request, and removes only idle nodes beyond it."""
    asking = {(path.name, function) for path in SOURCES for function, _ in calls(path, "request_resources")}
    assert asking == {("node_request.py", "request_nodes")}


def test_the_tools_for_agents_reach_nothing_that_acts_and_their_client_sends_only_gets() -> None:
    """No verb and no apply is in reach. What shares a module with reading (`apply/jobs.py` sends jobs, too) is behind
    the client, which refuses everything but GETs: it is made in one place, with what `answer` has decided.
    """
    reached = modules_reached("fleetctl.cli.mcp.command")
    assert {"fleetctl.cli.mcp.server", "fleetctl.cli.mcp.tools", "fleetctl.workflow.planning"} <= reached
    acting = re.compile(r"fleetctl\.(forge|watch|doctor|demo|sizing\.origins)|"
                        r"fleetctl\.agent\.(?!weights\.(index|proxy|views)$)|"
                        r"fleetctl\.apply\.(?!(history|jobs|prepare|follow|outcome)$)|"
                        r"fleetctl\.cli\.(?!mcp\.|(commands|completion|console|failures|flags|process|signals)$)")
    assert [module for module in reached if acting.match(module)] == []
    asking = [path for path in SOURCES if ".".join(("fleetctl", *path.relative_to(PACKAGE).with_suffix("").parts))
              in reached]
    built = {(path.name, function): {word.arg: ast.unparse(word.value) for word in call.keywords}["reads_only"]
             for path in asking for function, call in calls(path, "DashboardClient")}
    assert built == {("client.py", "without_access"): "self._reads_only",
                     ("dashboard.py", "open_dashboard"): "invocation.reads_only"}
    tools = PACKAGE / "cli" / "mcp" / "tools.py"
    [(running, run)] = [(function, call) for function, call in calls(tools, "run")]
    assert (running, ast.unparse(run.args[0])) == ("answer", "asked")
    [told] = [call for function, call in calls(tools, "replace") if any(word.arg == "reads_only" for word in
                                                                         call.keywords)]
    assert ast.unparse(told).endswith("reads_only=True)")
    assert [(path.name, function) for path in asking for function, _ in calls(path, "answer") if path == tools] == [
        ("tools.py", "main")]


def requests(folder: str) -> set[tuple[str, str]]:
    """Every request that the code of a folder sends: the method, and the path with its placeholders as {}."""
    sent = set()
    for path in sources(PACKAGE / folder):
        for _, call in calls(path, "request"):
            method, where = call.args[:2]
            sent.add((ast.unparse(method), template(where, path)))
    return sent


def template(node: ast.expr, path: Path) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.Name):
        for source in (path, PACKAGE / "inventory" / "jobs.py"):
            assigned = [other.value for other in ast.walk(ast.parse(source.read_text()))
                        if isinstance(other, ast.Assign) and ast.unparse(other.targets[0]) == node.id]
            if len(assigned) == 1:
                return template(assigned[0], source)
    return f"<{ast.unparse(node)}>"


def test_reading_a_cluster_sends_only_gets() -> None:
    """`client.py` passes on the method it is given; every caller in its folder passes GET."""
    assert requests("inventory") == {("'GET'", "<path>")}
    client = PACKAGE / "inventory" / "client.py"
    assert {ast.unparse(call.args[1]) for _, call in calls(client, "_sender")} == {"method", "'GET'"}
    assert client.read_text().count("self._http.") == 2, "one call sends, one closes"


def test_an_apply_writes_packages_and_jobs_stops_jobs_and_deletes_ended_ones() -> None:
    assert {sent for sent in requests("apply") if sent[0] != "'GET'"} == {
        ("'PUT'", "/api/packages/gcs/{}"), ("'POST'", "/api/jobs/"), ("'POST'", "/api/jobs/{}/stop"),
        ("'DELETE'", "{}{}")}


@pytest.mark.parametrize("folder", ["cli", "render", "planner", "fleetfile", "documents"])
def test_no_other_folder_sends_requests(folder: str) -> None:
    assert requests(folder) == set()


def test_only_the_clients_of_the_cluster_and_of_the_forge_use_http() -> None:
    know = {path: path.read_text() for path in SOURCES
            if imported(path) & {"httpx", "requests", "urllib3", "aiohttp", "urllib.request"}}
    assert {path.parent.name for path in know} == {"forge", "inventory", "sizing", "weights"}, (
        "the last fetches files on a node, and `model describe` reads headers")
    speakers = [str(path.relative_to(PACKAGE)) for path, text in know.items()
                if re.search(r"httpx\.(?!(Response|DecodingError|create_ssl_context)\b)[a-z]|httpx\.\w*Client", text)]
    assert speakers == ["forge/http.py", "inventory/client.py", "sizing/origins.py"]
    assert set(re.findall(r"(?:stream|request)\(\s*\"([A-Z]+)\"", know[PACKAGE / "sizing/origins.py"])) == {"GET"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports at run time, without imports only for types."""
    found = set()
    typed = {id(child) for node in nodes_of(path) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
             for child in ast.walk(node)}
    for node in nodes_of(path):
        if isinstance(node, ast.Import) and id(node) not in typed:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and id(node) not in typed:
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
