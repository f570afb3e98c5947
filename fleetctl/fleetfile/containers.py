"""Containers in a command line: which runtime starts one, from which image. The only reader of such commands.

It looks behind wrappers such as `env` and `sudo`, and into the text of `sh -c`. An image is only named if it is
certain: an option that is not listed here may or may not be followed by its value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

DAEMONS = frozenset({"docker", "nerdctl", "ctr", "crictl", "docker-compose", "podman-remote"})
"""Clients of a daemon, which starts the container: it is no descendant of the client, and outlives it."""
FILES = frozenset({"apptainer", "singularity"})
"""Runtimes whose image is a file or a folder, unless it is a URL."""
RUNTIMES = frozenset({"podman", *FILES, *DAEMONS})
MENTIONED = re.compile(r"(?:^|[\0/\s;&|(])(?:podman|apptainer|singularity|docker|nerdctl|ctr|crictl)")
"""Found in every text that could start a container; cheap."""

_VERBS = frozenset({
    "run", "exec", "create", "start", "up", "container", "instance", "compose", "task", "tasks", "runp"})
_WRAPPERS = frozenset({
    "env", "sudo", "doas", "nice", "ionice", "nohup", "setsid", "timeout", "exec", "command", "stdbuf", "numactl",
    "time", "taskset", "chrt", "tini", "dumb-init", "prlimit", "then", "do", "else", "{", "!"})
_OTHER_USERS = frozenset({"sudo", "doas"})
"""Each user has images of their own."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REFERENCE = re.compile(r"\$\([A-Za-z_]\w*\)")

_REMOTE = ("-r", "--remote", "--url", "-c", "--connection", "-H", "--host", "--context")
"""Options of podman and docker before the verb that name another daemon or machine."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLAGS = _names("""
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hosts no-hostname
oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
tls-verify tty unsetenv-all d h i P q t remote noout syslog trace transient-store debug tls tlsverify D r
""")
"""Options of podman, docker and nerdctl without a value, before and after the verb."""
_FILE_FLAGS = _names("""
allow-setuid cleanenv compat contain containall disable-cache docker-login fakeroot help ignore-fakeroot-command
ignore-subuid ipc keep-privs net no-eval no-home no-https no-init no-pid no-privs no-setgroups no-umask nohttps nv
nvccli passphrase pid quiet rocm sharens underlay unsquash userns uts verbose debug silent nocolor no-compat writable
writable-tmpfs c C d e f h i n p q s u U v w
""")
"""Options of apptainer without a value."""
_VALUES = _names("""
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
""")
"""Options of podman, docker and nerdctl with a value, before and after the verb."""
_FILE_VALUES = _names("""
add-caps app apply-cgroups authfile bind blkio-weight blkio-weight-device config cpu-shares cpus cpuset-cpus
cpuset-mems cwd dns docker-host drop-caps env env-file fusemount gid home hostname memory memory-reservation
memory-swap mount netns-path network network-args no-mount oom-kill-disable overlay pem-path pids-limit pwd scratch
security shm-size uid workdir B H o S W
""")
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
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in _SHELLS), None)
    text = None if at is None else next(
        (number + 1 for number in range(at + 1, len(words) - 1)
         if re.fullmatch(r"-[a-z]*c[a-z]*", words[number])), None)
    if at is None or text is None or (at and words[0].rpartition("/")[2] not in _WRAPPERS):
        yield 0, list(words)
        return
    script = _REFERENCE.sub("$", words[text]).replace("\\\n", " ")
    for piece in re.split(r"[;&|\n()]+", script):
        try:
            yield text, shlex.split(piece, comments=True)
        except ValueError:  # the quotes contain what separates commands
            yield text, piece.split()


def _parsed(runtime: str, rest: Sequence[str], word: int) -> Container | None:
    """Return the container that a runtime with these words starts; None if it starts none."""
    flags, values = (_FILE_FLAGS, _FILE_VALUES) if runtime in FILES else (_FLAGS, _VALUES)
    at = _operand(rest, 0, flags, values)
    verb_at = at if at is not None else next((number for number, one in enumerate(rest) if one in _VERBS), len(rest))
    if verb_at >= len(rest) or rest[verb_at] not in _VERBS:
        return None
    before = rest[:verb_at]
    is_remote = any(one.partition("=")[0] in _REMOTE for one in before) and runtime not in FILES
    is_apart = runtime in DAEMONS or is_remote
    if rest[verb_at] in ("container", "instance"):
        verb_at += 1
    verb = rest[verb_at] if verb_at < len(rest) else ""
    starts = verb == "run" or (runtime in FILES and verb in ("exec", "start"))
    place = _operand(rest, verb_at + 1, flags, values) if starts and at is not None else None
    known = place is not None and place < len(rest) and runtime not in ("ctr", "crictl") and not (
        is_remote or {"--root", "--storage-opt", "--namespace", "-n"} & {one.partition("=")[0] for one in before})
    return Container(runtime, word, is_apart, rest[place] if known and place is not None else None)


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
