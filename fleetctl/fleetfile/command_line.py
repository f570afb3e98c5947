"""Command lines of engines: the container that one starts, `$(NAME)`, secrets, flags that set cards or a port.

A container is looked for behind wrappers such as `env` and `sudo`, and in the text of `sh -c`. Its image is only named
if it is certain: an option that is not listed here may or may not be followed by its value.
fleetctl must set every name with its prefix. Any other name is one of the engine's environment, or stays as it is.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from math import prod

from fleetctl.documents.mask import MAY_BE_SECRET, is_secret_value, secrets_in, secrets_in_words, variable_for
from fleetctl.documents.names import nearest
from fleetctl.documents.position import Path
from fleetctl.fleetfile.nodes import Raw
from fleetctl.problem import Problem

DAEMONS = frozenset({"docker", "nerdctl", "ctr", "crictl", "docker-compose", "podman-remote"})
"""Clients of a daemon, which starts the container: it is no descendant of the client, and outlives it."""
FILES = frozenset({"apptainer", "singularity"})
"""Runtimes whose image is a file or a folder, unless it is a URL."""
RUNTIMES = frozenset({"podman", *FILES, *DAEMONS})

_VERBS = frozenset({
    "run", "exec", "create", "start", "up", "container", "instance", "compose", "task", "tasks", "runp"})
_WRAPPERS = frozenset({
    "env", "sudo", "doas", "nice", "ionice", "nohup", "setsid", "timeout", "exec", "command", "stdbuf", "numactl",
    "time", "taskset", "chrt", "tini", "dumb-init", "prlimit", "then", "do", "else", "{", "!"})
_OTHER_USERS = frozenset({"sudo", "doas"})
"""Each user has images of their own."""
_SHELLS_OF_TEXT = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN_REFERENCE = re.compile(r"\$\([A-Za-z_]\w*\)")

_REMOTE = ("-r", "--remote", "--url", "-c", "--connection", "-H", "--host", "--context")
"""Options of podman and docker before the verb that name another daemon or machine."""

_FLAGS = """
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hosts no-hostname
oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
tls-verify tty unsetenv-all d h i P q t remote noout syslog trace transient-store debug tls tlsverify D r
"""
"""Options of podman, docker and nerdctl without a value, before and after the verb."""
_FILE_FLAGS = """
allow-setuid cleanenv compat contain containall disable-cache docker-login fakeroot help ignore-fakeroot-command
ignore-subuid ipc keep-privs net no-eval no-home no-https no-init no-pid no-privs no-setgroups no-umask nohttps nv
nvccli passphrase pid quiet rocm sharens underlay unsquash userns uts verbose debug silent nocolor no-compat writable
writable-tmpfs c C d e f h i n p q s u U v w
"""
"""Options of apptainer without a value."""
_VALUES = """
add-host annotation arch attach authfile blkio-weight cap-add cap-drop cgroup-conf cgroup-parent cgroupns cgroups
cidfile conmon-pidfile cpu-period cpu-quota cpu-shares cpus cpuset-cpus cpuset-mems device device-cgroup-rule dns
dns-option dns-opt dns-search domainname entrypoint env env-file env-merge expose gidmap gpus group-add health-cmd
health-interval health-retries health-start-period health-timeout hostname hostuser image-volume init-path ip ip6 ipc
isolation label label-file link log-driver log-opt mac-address memory memory-reservation memory-swap memory-swappiness
mount name network net network-alias oom-score-adj os passwd-entry personality pid pidfile pids-limit platform pod
preserve-fds publish pull requires restart runtime sdnotify seccomp-policy secret security-opt shm-size
shm-size-systemd stop-signal stop-timeout storage-opt subgidname subuidname sysctl systemd timeout tmpfs tz uidmap
ulimit umask unsetenv user userns uts variant volume volume-driver volumes-from workdir a e h l m p u v w
cgroup-manager config conmon events-backend hooks-dir identity log-level namespace network-cmd-path network-config-dir
root runroot runtime-flag ssh storage-driver tmpdir url connection volumepath host context tlscacert tlscert tlskey
address host-gateway-ip snapshotter c H n
"""
"""Options of podman, docker and nerdctl with a value, before and after the verb."""
_FILE_VALUES = """
add-caps app apply-cgroups authfile bind blkio-weight blkio-weight-device config cpu-shares cpus cpuset-cpus
cpuset-mems cwd dns docker-host drop-caps env env-file fusemount gid home hostname memory memory-reservation
memory-swap mount netns-path network network-args no-mount oom-kill-disable overlay pem-path pids-limit pwd scratch
security shm-size uid workdir B H o S W
"""
"""Options of apptainer with a value."""


@dataclass(frozen=True, slots=True)
class Container:
    """A runtime that a command line starts, by its own name, and the index of the word that names it.

    `is_apart` = the container outlives this command. `image` = as written; None if it is not certain.
    """

    runtime: str
    word: int
    is_apart: bool
    image: str | None

    @property
    def image_on_node(self) -> str | None:
        """The image that must be on the node; None if it is unknown, on another machine, or has no absolute path."""
        image = self.image
        if image is None or "$" in image or image.startswith("-"):
            return None
        if self.runtime in FILES:
            return image if image.startswith("/") else None
        return image if self.runtime in ("podman", "docker", "nerdctl") else None


def find_container(words: Sequence[str]) -> Container | None:
    """Return the first container that a command line starts, or None."""
    for number, command in _simple_commands(words):
        for at, word in enumerate(command):
            name = word.rpartition("/")[2]
            if name in RUNTIMES and (found := _parsed(name, command[at + 1:], number or at)):
                as_other_user = not _OTHER_USERS.isdisjoint(command[:at])
                return replace(found, image=None) if as_other_user else found
            if at == 0 and name not in _WRAPPERS and not _ASSIGNMENT.match(word):
                break
    return None


def _simple_commands(words: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the command itself; or those in the text of its `sh -c`, each with the index of that text."""
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in _SHELLS_OF_TEXT), None)
    text = None if at is None else next(
        (number + 1 for number in range(at + 1, len(words) - 1)
         if re.fullmatch(r"-[a-z]*c[a-z]*", words[number])), None)
    if at is None or text is None or (at and words[0].rpartition("/")[2] not in _WRAPPERS):
        yield 0, list(words)
        return
    script = _PLAIN_REFERENCE.sub("$", words[text]).replace("\\\n", " ")
    for piece in re.split(r"[;&|\n()]+", script):
        try:
            yield text, shlex.split(piece, comments=True)
        except ValueError:  # the quotes contain what separates commands
            yield text, piece.split()


def _parsed(runtime: str, rest: Sequence[str], word: int) -> Container | None:
    """Return the container that a runtime with these words starts; None if it starts none."""
    texts = (_FILE_FLAGS, _FILE_VALUES) if runtime in FILES else (_FLAGS, _VALUES)
    flags, values = (frozenset(text.split()) for text in texts)
    at = _operand(rest, 0, flags, values)
    verb_at = at if at is not None else next((number for number, word in enumerate(rest) if word in _VERBS), len(rest))
    if verb_at >= len(rest) or rest[verb_at] not in _VERBS:
        return None
    before = rest[:verb_at]
    is_remote = any(word.partition("=")[0] in _REMOTE for word in before) and runtime not in FILES
    is_apart = runtime in DAEMONS or is_remote
    if rest[verb_at] in ("container", "instance"):
        verb_at += 1
    verb = rest[verb_at] if verb_at < len(rest) else ""
    starts = verb == "run" or (runtime in FILES and verb in ("exec", "start"))
    image_at = _operand(rest, verb_at + 1, flags, values) if starts and at is not None else None
    known = image_at is not None and image_at < len(rest) and runtime not in ("ctr", "crictl") and not (
        is_remote or {"--root", "--storage-opt", "--namespace", "-n"} & {word.partition("=")[0] for word in before})
    return Container(runtime, word, is_apart, rest[image_at] if known and image_at is not None else None)


def _operand(words: Sequence[str], start: int, flags: frozenset[str], values: frozenset[str]) -> int | None:
    """Return the index of the first word that is neither an option nor its value; None if an option is not known."""
    at = start
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, has_value, _ = words[at].lstrip("-").partition("=")
        if not words[at].startswith("--"):  # short options may be joined, the last one with its value
            head = next((number for number, letter in enumerate(name) if letter not in flags), None)
            has_value = has_value or ("x" if head is not None and head + 1 < len(name) else "")
            name = name[-1:] if head is None else name[head]
        if name not in flags and not has_value:
            if name not in values:
                return None
            at += 1
        at += 1
    return at + (at < len(words) and words[at] == "--")


_DIVIDING = {
    **dict.fromkeys(("tensor-parallel-size", "tensor-model-parallel-size", "tp-size", "tp", "num-shard"), "tensor"),
    **dict.fromkeys(("pipeline-parallel-size", "pipeline-model-parallel-size", "pp-size", "pp"), "pipeline"),
}
"""Flags of vLLM, SGLang, TensorRT-LLM, TGI and NeMo, with hyphens for underscores, that divide one model over cards."""
_BEGINNINGS = re.compile("tensor-p|pipeline-p")
"""How an abbreviation of one of them begins: argparse of Python takes any beginning that fits one flag alone."""
_MULTIPLYING = ("data-parallel", "dp", "enable-dp", "context-parallel", "prefill-context-parallel")
"""Prefixes of flags that may multiply that number of cards."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh", "su", "runuser"})
_BEFORE_SCRIPT = re.compile("-[A-Za-z]*c")
_NAME_OF_FLAG = r"(--?[A-Za-z][\w.-]*)"
_FLAG_AND_BLANK = re.compile(rf"(?:\s+|(?={_NAME_OF_FLAG[1:-1]}\s)){_NAME_OF_FLAG}")
_TAKES_FLAGS = re.compile("args|flags|opts|options|command|cmd", re.IGNORECASE)
"""In the name of a flag whose value may be flags of another program."""
_DASH, _QUOTE = r"\u2010-\u2015\u2212\ufe58\ufe63\uff0d", r"\u2018-\u201f"
_HIDDEN = r"\xa0\xad\u200b-\u200f\u2060\ufeff"
_SIGN = re.compile(f"[{_DASH}{_QUOTE}{_HIDDEN}]")
_TYPOGRAPHIC = re.compile(
    rf"^-*[{_DASH}][-{_DASH}]*(?P<flag>[\w.-]+)|^--?[A-Za-z][\w.-]*[{_DASH}{_QUOTE}{_HIDDEN}]|"
    rf"^-*[\w.-]+=[{_QUOTE}]|^[{_QUOTE}]\S*$|^\S+[{_QUOTE}{_HIDDEN}]$")
"""A dash before a name, any such sign in the name of a flag, and quotes around a word or a value; not in prose."""
TEXT_BYTES = 128 << 10
"""MAX_ARG_STRLEN of Linux, with the NUL at the end. Its limit for all texts together is beyond that of a model."""
PROBES = ("readiness", "liveness")


Word = tuple[Path, str, bool]
"""A path in the file, the text of a command line there, and whether a shell, or `env -S`, splits it into words."""


def command_line(owner: Raw) -> Iterator[Word]:
    """Yield the texts of `command` and `args`."""
    programs, before = set[str](), ""
    for key in ("command", "args"):
        for path, text in owner.texts(key):
            yield path, text, (not programs.isdisjoint(_SHELLS) and bool(_BEFORE_SCRIPT.fullmatch(before))) or (
                "env" in programs and before in ("-S", "--split-string"))
            programs.add(text.rpartition("/")[2])
            before = text


def flags(engine: Raw) -> Iterator[tuple[str, str, Path]]:
    """Yield each flag without its hyphens, the text after its `=` or else the next word, and its path."""
    words = [(word.strip("\"';"), path) for path, text, is_script in command_line(engine)
             for word in (text.split() if is_script else (text,))]
    for (word, path), (following, _) in pairwise([*words, ("", ())]):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            yield name.lstrip("-").replace("_", "-"), value.strip("\"'") or following, path


def cards_by_flags(engine: Raw, group_size: int) -> tuple[int, int | None, bool, Path] | None:
    """Return the number of cards the flags divide the model over; that of tensor parallelism alone, None without its
    flag; whether other flags may multiply them; and the path of the first such flag. None if no flag has a number.

    A number may also be in a variable of `env`, or be the size of the group.
    """
    sizes: dict[str, tuple[int, Path]] = {}
    multiplied = False
    variables = {**engine.child("env").value, "FLEETCTL_GROUP_SIZE": str(group_size)}
    for written, value, path in flags(engine):
        multiplied = multiplied or written.startswith(_MULTIPLYING)
        name = written
        if _BEGINNINGS.match(written):
            name = next((flag for flag in _DIVIDING if flag.startswith(written)), written)
        if name not in _DIVIDING:
            continue
        size = str(variables.get(value.strip("${()}"))) if value.startswith("$") else value
        if size.isdecimal() and len(size) < 6:
            sizes[_DIVIDING[name]] = int(size), path
    if not sizes:
        return None
    tensor = sizes.get("tensor")
    first = next(iter(sizes.values()))[1]
    return prod(size for size, _ in sizes.values()), tensor and tensor[0], multiplied, first


def fixed_port(engine: Raw) -> tuple[int, Path] | None:
    """Return the number after `--port`, and its path; None if there is none."""
    return next(((int(value), path) for name, value, path in flags(engine)
                 if name == "port" and value.isdecimal() and 0 < int(value[:6]) < 65536), None)


INJECTED: dict[str, str] = {
    "FLEETCTL_MODEL": "the model key",
    "FLEETCTL_VARIANT": "the name of the replica's variant; only set if the model has [variants](variants.md)",
    "FLEETCTL_REPLICA_ID": "the replica's id",
    "FLEETCTL_GROUP": "the worker group's name",
    "FLEETCTL_COPY": "the index of the group's copy, from 0",
    "FLEETCTL_RANK": "the member's rank in its gang, 0 for the Leader",
    "FLEETCTL_GROUP_SIZE": "the number of members in the group",
    "FLEETCTL_RANKS": "the ranks of this member for an engine that counts one per card, such as `8,9,10,11`",
    "FLEETCTL_LEADER_ADDRESS": "the address of rank 0 of the group",
    "FLEETCTL_LEADER_PORT": "a second free port at that address",
    "FLEETCTL_LEADER_ENDPOINT": "both as one, `10.0.0.7:7002` or `[fd00::7]:7002`",
    "FLEETCTL_HOST": "the address of this member's node",
    "FLEETCTL_NODE": "the name of this member's node",
    "FLEETCTL_PORT": "a free port for this member",
    "FLEETCTL_ENDPOINT": "the member's own address and port as one",
    "FLEETCTL_NAME": "a name that no other member of the cluster has, a DNS label: for a container, or files",
    "FLEETCTL_MODEL_DIR": "the folder with the member's [weights](weights.md); only set if it has weights",
}
"""The variables that fleetctl sets for an engine, with their meaning."""
MODEL_DIR, VARIANT, PORT_PREFIX = "FLEETCTL_MODEL_DIR", "FLEETCTL_VARIANT", "FLEETCTL_PORT_"

_MAY_BE_DAEMON = re.compile(r"(?:^|[\0/\s;&|(])(?:podman|docker|nerdctl|ctr|crictl)")
"""Found in every command line that may let a daemon start a container."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_SHELL_VARIABLE = re.compile(r"(?<!\$)\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")
_WHOLE_VARIABLE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\})")


def check_references(member: Raw, *, in_variant: bool) -> Iterator[Problem]:
    """Yield the unresolved references in one member's command, args, environment and probe commands."""
    engine = member.child("engine")
    environment = engine.child("env")
    texts = [(path, text) for owner in (engine, *(engine.child(probe).child("exec") for probe in PROBES))
             for path, text, _ in command_line(owner)]
    texts += engine.texts("version")
    values = {name: value for name, value in environment.value.items() if isinstance(value, str)}
    texts += [((*environment.path, name), value) for name, value in values.items()]
    ports = [port_variable(name) for _, name in engine.texts("ports")]
    for path, text in texts:
        for name in references(text):
            if name == MODEL_DIR and member.get("weights") is None:
                yield member.document.problem("FL048", path, f"$({name}) is not set for a member without weights",
                                              allowed="weights in this member")
            elif name == VARIANT and not in_variant:
                yield member.document.problem("FL048", path, f"$({name}) is only set for a model with variants",
                                              allowed="$(FLEETCTL_MODEL), or variants in this model")
            elif name.startswith(PORT_PREFIX) and name not in ports:
                yield member.document.problem("FL048", path, f"$({name}) is no port of this engine",
                                              allowed=", ".join(ports) or "a name in ports, beside command",
                                              suggestion=_meant(name, ports))
            elif name not in INJECTED and name not in ports:
                yield member.document.problem("FL048", path, f"$({name}) is not set by fleetctl",
                                              allowed=", ".join(INJECTED), suggestion=_meant(name))
    yield from _environment(environment, values)
    for path, name in engine.texts("caches"):
        if name in environment.value:
            yield member.document.problem("FL099", path, f"{name} is set in env, and names a folder of compile caches",
                                          allowed="either: fleetctl sets the variables in caches to folders of its own")
    yield from _words(engine)
    if _MAY_BE_DAEMON.search("\0".join(text for _, text, _ in command_line(engine))):
        yield from _containers(engine)
    yield from _secrets(engine)


def _containers(engine: Raw) -> Iterator[Problem]:
    """Warn about a container that a daemon starts: it is no process of the engine, and goes on when that has ended."""
    words = list(command_line(engine))
    container = find_container([text for _, text, _ in words])
    if container and container.is_apart:
        yield engine.document.problem(
            "FL077", words[container.word][0], f"{container.runtime} lets a daemon start the container, which goes on"
            " running, on its cards, when the engine is ended",
            allowed="podman or apptainer, whose containers end with the engine, or a script that ties the container to "
                    "its client: see the page about containers in the documentation")


def _environment(environment: Raw, values: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of an environment; a value is shown only if it is the variable's own name."""
    below = {name: [other for other in all_references(text) if other in values and other != name]
             for name, text in values.items() if "$(" in text}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        circle = sorted({*error.args[1]})
        yield environment.problem("FL089", f"{' and '.join(circle)} refer to each other", key=circle[0],
                                  allowed="text, variables that fleetctl sets, the node's, and others of env")
    for name in filter(_SIGN.search, environment.value):
        yield environment.problem("FL072", f"the name has {_sign_in(name)} where programs expect a sign of ASCII",
                                  key=name, on_key=True)
    for name, value in values.items():
        size = len(f"{name}={value}".encode(errors="surrogatepass"))
        if size >= TEXT_BYTES:
            yield environment.problem("FL090", f"{name} with its value has {size} bytes, and Linux hands a process at "
                                               f"most {TEXT_BYTES - 1} in one", key=name,
                                      allowed="the path of a file with it")
        if _WHOLE_VARIABLE.fullmatch(value) and "FLEETCTL" not in value:
            suggestion = f"{{fromNode: {name}}}" if value.strip("${}") == name else None
            yield environment.problem("FL068", f"the value of {name} looks like a shell variable: it is not expanded",
                                      key=name, allowed="text, $(NAME) or {fromNode: NAME}", suggestion=suggestion)


def _words(engine: Raw) -> Iterator[Problem]:
    """Yield the problems of words that no program understands, or that Linux hands to none; shows no value."""
    document = engine.document
    lines = [list(command_line(owner)) for owner in (engine, *(engine.child(probe).child("exec") for probe in PROBES))]
    has_shell = any(text.rpartition("/")[2] in (*_SHELLS, "env") for _, text, _ in lines[0])
    for (_, before, _), (path, text, is_script) in chain.from_iterable(
            pairwise([((), "", False), *line]) for line in lines):
        size, secret = len(text.encode(errors="surrogatepass")), MAY_BE_SECRET.search(text) is not None
        if size >= TEXT_BYTES:
            yield document.problem("FL090", path, f"this text has {size} bytes, and Linux hands a process at most "
                                                  f"{TEXT_BYTES - 1} in one", allowed="the path of a file with it")
        flag = None if is_script or _TAKES_FLAGS.search(before) else _FLAG_AND_BLANK.match(text)
        if flag:
            yield document.problem(
                "FL071", path, f"{flag[1]} and a blank are in one word, so no program finds the flag", secret=secret,
                allowed=f"two items, {flag[1]} and its value, or {flag[1]}=VALUE")
        for found in filter(None, map(_TYPOGRAPHIC.search, text.split() if is_script else (text,))):
            name = found["flag"] or ""
            yield document.problem("FL072", path, f"{_sign_in(found[0])} where programs expect a sign of ASCII",
                                   secret=secret, suggestion=f"{'-' * min(len(name), 2)}{name}" or None)
        match = None if has_shell or path[:-2] != engine.path else _SHELL_VARIABLE.search(text)
        if match:
            yield document.problem("FL062", path, f"{match[0]} is a shell variable, but there is no shell here",
                                   suggestion=_meant(match[1] or match[2]))


def _sign_in(text: str) -> str:
    sign = _SIGN.search(text)
    return f"{unicodedata.name(sign[0])} (U+{ord(sign[0]):04X})" if sign else text


def _secrets(engine: Raw) -> Iterator[Problem]:
    """Warn about literal secrets, without showing them."""
    for owner in (engine, *(engine.child(probe).child("exec") for probe in PROBES)):
        words = list(command_line(owner))
        texts = [text for _, text, _ in words]
        if not MAY_BE_SECRET.search("\0".join(texts)):
            continue
        for at, secrets in secrets_in_words(texts):
            value_of = re.fullmatch("the value of (.+)", secrets[0][2])
            name = variable_for(value_of[1]) if value_of else "SECRET"
            what = " and ".join(dict.fromkeys(what for _, _, what in secrets))
            yield engine.document.problem(
                "FL070", words[at][0], f"{what} is in plain text: whoever can read this file has it", secret=True,
                allowed=f"$({name}), with env: {{{name}: {{fromNode: {name}}}}}; it is expanded when the engine starts")
    for probe in PROBES:
        request = engine.child(probe).child("http")
        path = request.text("path") or ""
        for _, _, what in secrets_in(path) if MAY_BE_SECRET.search(path) else ():
            name = variable_for(what.removeprefix("the value of "))
            yield engine.document.problem(
                "FL070", (*request.path, "path"), f"{what} is in plain text: whoever can read this file has it",
                secret=True,
                allowed=f"exec: a command, with $({name}), and env: {{{name}: {{fromNode: {name}}}}}")
    for name, value in engine.child("env").value.items():
        if isinstance(value, str) and MAY_BE_SECRET.search(f"{name}={value}") and is_secret_value(name, value):
            yield engine.child("env").problem(
                "FL070", f"the value of {name} is in plain text: whoever can read this file has it", key=name,
                allowed=f"{{fromNode: {name}}}, the variable {name} of the node")


def references(text: str) -> Iterator[str]:
    """Yield the names in `$(...)` that have our prefix."""
    yield from (name for name in all_references(text) if name.strip().upper().startswith("FLEETCTL"))


def all_references(text: str) -> Iterator[str]:
    """Yield the names in `$(...)`; `$$(NAME)` is an escape, as in Kubernetes."""
    yield from (match[1] for match in _REFERENCE.finditer(text) if match[1] is not None)


def port_variable(name: str) -> str:
    """Return the variable with the port that `ports` of an engine calls by this name."""
    return PORT_PREFIX + name.upper().replace("-", "_")


def _meant(name: str, known: Sequence[str] = tuple(INJECTED)) -> str | None:
    meant = f"FLEETCTL_{name}" if f"FLEETCTL_{name}" in known else nearest(name, known)
    return f"$({meant})" if meant else None
