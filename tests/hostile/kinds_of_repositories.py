"""Repositories inside a change and around it: embedded ones, submodules, worktrees, configuration with programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.hostile.case import BASE, FLEET_FILE, TOP_MODEL, Case, fleet_text
from tests.hostile.kinds import kind
from tests.hostile.objects import FILE, LINK, SUBMODULE, Entry, Pack, Store

REFS = ("main", "odd", "change")
HOOKS = ("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change",
         "pre-auto-gc", "pre-commit", "pre-push", "prepare-commit-msg", "proc-receive", "reference-transaction",
         "update")


def programs(case: Case, hooks: str) -> str:
    """Return a configuration in which every key that can name a program names a trap."""
    trap = case.marker
    case.may_run |= {"core.sshCommand", "credential.helper", "pre-push", "reference-transaction", "core.gitProxy",
                     "core.askPass", "gpg.program", "gpg.ssh.program"}
    return f"""
[core]
\tfsmonitor = {trap("core.fsmonitor")}
\thooksPath = {hooks}
\tsshCommand = {trap("core.sshCommand")}
\tgitProxy = {trap("core.gitProxy")}
\tpager = {trap("core.pager")}
\teditor = {trap("core.editor")}
\taskPass = {trap("core.askPass")}
\talternateRefsCommand = {trap("core.alternateRefsCommand")}
\tattributesFile = {case.folder}/outside/attributes
\tuntrackedCache = keep
[sequence]
\teditor = {trap("sequence.editor")}
[filter "x"]
\tclean = {trap("filter.clean")}
\tsmudge = {trap("filter.smudge")}
\tprocess = {trap("filter.process")}
\trequired = true
[filter ""]
\tclean = {trap("filter.unnamed")}
[diff]
\texternal = {trap("diff.external")}
\ttool = t
\tsubmodule = log
\tignoreSubmodules = none
[difftool "t"]
\tcmd = {trap("difftool.cmd")}
[diff "x"]
\ttextconv = {trap("diff.textconv")}
\tcommand = {trap("diff.command")}
\tcachetextconv = true
[merge "x"]
\tdriver = {trap("merge.driver")}
[log]
\tshowSignature = true
[gpg]
\tprogram = {trap("gpg.program")}
[gpg "ssh"]
\tprogram = {trap("gpg.ssh.program")}
\tdefaultKeyCommand = {trap("gpg.ssh.defaultKeyCommand")}
[commit]
\tgpgSign = true
[credential]
\thelper = !{trap("credential.helper")}
[status]
\tsubmoduleSummary = true
[trace2]
\teventTarget = {case.ran}/trace2
\tnormalTarget = {case.ran}/trace2.normal
[uploadpack]
\tpackObjectsHook = {trap("uploadpack.packObjectsHook")}
[pager]
\tls-tree = {trap("pager.ls-tree")}
\tcat-file = {trap("pager.cat-file")}
\tstatus = {trap("pager.status")}
\tlog = {trap("pager.log")}
\tshow = {trap("pager.show")}
[alias]
\tstatus = !{trap("alias.status")}
\trev-parse = !{trap("alias.rev-parse")}
\tcat-file = !{trap("alias.cat-file")}
\tls-tree = !{trap("alias.ls-tree")}
[interactive]
\tdiffFilter = {trap("interactive.diffFilter")}
[protocol]
\tallow = always
[protocol "ext"]
\tallow = always
[submodule]
\trecurse = true
[safe]
\tdirectory = *
\tbareRepository = all
[url "ext::{trap("url.insteadOf")} "]
\tinsteadOf = {case.server}
[fetch]
\trecurseSubmodules = on-demand
[gc]
\tauto = 1
[maintenance]
\tauto = true
"""


def partial(case: Case) -> str:
    """Return the configuration of a partial clone that gets missing objects by a command."""
    return f"""
[extensions]
\tpartialClone = theirs
[remote "theirs"]
\turl = {case.rng.choice([f"ext::{case.marker('promisor')}", case.canary.git_url, case.canary.url, "ssh://127.1/x"])}
\tpromisor = true
\tuploadpack = {case.marker("remote.uploadpack")}
\treceivepack = {case.marker("remote.receivepack")}
\tvcs = {case.rng.choice(["x", "ext"])}
\tpartialclonefilter = blob:none
"""


def forged(case: Case, store: Store, how: str) -> str:
    """Write a history in which the base already wants what the change does; return the commit to be taken for main."""
    text = (case.files[FLEET_FILE].data if case.head is not None and FLEET_FILE in case.files
            else fleet_text({**BASE, TOP_MODEL: 12}, case.address or case.cluster).encode())
    if how == "another commit":
        tree = store.folders({**case.files, FLEET_FILE: Entry(FILE, text)})
        return store.commit(tree, message=b"not the base\n")
    pack = Pack(case.format)
    for name in case.history:
        what, data = case.honest.read(name)
        if data == fleet_text(BASE, case.cluster).encode():
            data = text
        if how == "in a pack":
            pack.add(name, what, data)
        else:
            store.lie(name, what, data)
    if how == "in a pack":
        pack.save(store.folder)
    return case.base


def bare_files(case: Case, folder: Path, config: str, how: str) -> dict[str, bytes]:
    """Return the files of a bare repository with a forged base, by path; `folder` is empty, for the work."""
    base = forged(case, Store(folder / "objects", case.format), how)
    shape = "" if case.format == "sha1" else f"[extensions]\n\tobjectformat = {case.format}\n"
    version = 0 if case.format == "sha1" else 1
    files = {"HEAD": b"ref: refs/heads/main\n", "config": (
        f"[core]\n\trepositoryformatversion = {version}\n{shape}{config}").encode()}
    files |= {f"refs/heads/{name}": f"{base}\n".encode() for name in REFS}
    files |= {"refs/remotes/origin/main": f"{base}\n".encode(), "packed-refs": b"# pack-refs with: peeled sorted\n"}
    for found in folder.rglob("*"):
        if found.is_file():
            files[found.relative_to(folder).as_posix()] = found.read_bytes()
    return files


HOW = ("under the true name", "in a pack", "another commit")
LEVELS = ("fleets", "", "fleets/more", "tools")


def embed(case: Case, level: str, config: str, how: str | None = None) -> dict[str, bytes]:
    """Commit a bare repository into a folder of the change, and return its files."""
    folder = case.folder / "tmp/bare"
    shutil.rmtree(folder, ignore_errors=True)
    files = bare_files(case, folder, config, how or case.rng.choice(HOW))
    for name, data in files.items():
        case.files[f"{level}/{name}".lstrip("/")] = Entry(FILE, data)
    return files


def _bare(case: Case) -> str:
    return case.rng.choice(["\tbare = true\n", "\tbare = false\n\tworktree = ../\n",
        "\tbare = false\n\tworktree = .\n"])


@kind("repository")
def a_bare_repository_in_the_fleet_folder(case: Case) -> None:
    embed(case, "fleets", _bare(case))


@kind("repository")
def a_bare_repository_at_another_level(case: Case) -> None:
    level = case.rng.choice(LEVELS[1:])
    embed(case, level, _bare(case))
    if level == "fleets/more":
        case.files["fleets/more/more.yaml"] = Entry(FILE, b"")


@kind("repository")
def a_bare_repository_that_names_programs(case: Case) -> None:
    hooks = f"{case.folder}/work/tools/hooks"
    embed(case, "fleets", f"\tbare = false\n\tworktree = ../\n{programs(case, hooks)}{partial(case)}", "another commit")
    case.files |= {f"tools/hooks/{hook}": Entry("100755", f"#!/bin/sh\n{case.marker(hook)}\n".encode())
                   for hook in HOOKS}
    case.files["fleets/.gitattributes"] = Entry(FILE, b"* filter=x diff=x merge=x\n")
    case.may_run.clear()


@kind("repository")
def a_bare_repository_behind_a_link_to_the_fleet(case: Case) -> None:
    """The fleet folder becomes a link to a folder that lies in an embedded repository."""
    if FLEET_FILE not in case.files:
        return  # another kind has put the fleet elsewhere
    moved = {path: entry for path, entry in case.files.items() if path.startswith("fleets/")}
    for path, entry in moved.items():
        del case.files[path]
        case.files[f"vendor/repository/{path}"] = entry
    forged_from = {**case.files}
    case.files[FLEET_FILE] = moved[FLEET_FILE]
    for name, data in bare_files(case, _empty(case), "\tbare = false\n\tworktree = .\n", case.rng.choice(HOW)).items():
        forged_from[f"vendor/repository/{name}"] = Entry(FILE, data)
    case.files = {**forged_from, "fleets": Entry(LINK, b"vendor/repository/fleets")}
    case.head, case.no_head = None, True


def _empty(case: Case) -> Path:
    shutil.rmtree(case.folder / "tmp/bare", ignore_errors=True)
    return case.folder / "tmp/bare"


def _unpack(case: Case, files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _free(path: Path) -> Path:
    """Remove what another kind has put there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


@kind("repository")
def an_unpacked_git_folder_in_the_fleet_folder(case: Case) -> None:
    """Git commits no `.git`; an archive or a cache that the job unpacks may hold one."""

    def unpack() -> None:
        if (case.top / "fleets").is_file():
            return  # of another kind
        name = case.rng.choice([".git", ".git", ".GIT", ".Git", "git~1", ".g\u200cit"])
        config = case.rng.choice(["\tbare = false\n", f"\tbare = false\n{programs(case, 'hooks')}{partial(case)}"])
        case.may_run.clear()
        files = bare_files(case, _empty(case), config, case.rng.choice(HOW))
        _unpack(case, files, _free(case.top / "fleets" / name))

    case.later.append(unpack)


@kind("repository")
def a_git_file_or_link_that_leads_elsewhere(case: Case) -> None:
    embed(case, "vendor/hidden", "\tbare = false\n\tworktree = ../../fleets\n")
    target = case.rng.choice(["../vendor/hidden", str(case.folder / "work/vendor/hidden"), "../../outside",
                              "../.git/worktrees/none", ".", "../fleets/.git", "\x1b[2J", "x" * 5000])

    def lead() -> None:
        if (case.top / "fleets").is_file():
            return  # of another kind
        file = _free(case.top / "fleets/.git")
        if case.rng.random() < 0.4 and len(target) < 200:
            file.symlink_to(target)
        else:
            file.write_text(f"gitdir: {target}\n" * case.rng.choice([1, 1, 100_000]))

    case.later.append(lead)


@kind("repository")
def the_fleet_folder_as_a_submodule(case: Case) -> None:
    """The change replaces the folder by a submodule of its author's, which the job checks out."""
    inside = {path.removeprefix("fleets/"): entry for path, entry in case.files.items() if path.startswith("fleets/")}
    for path in [path for path in case.files if path.startswith("fleets/")]:
        del case.files[path]
    theirs = Store(case.folder / "tmp/theirs/objects", case.format)
    shutil.rmtree(theirs.folder, ignore_errors=True)
    first = theirs.commit(theirs.folders(inside), message=b"the first\n")
    commit = theirs.commit(theirs.folders(inside), first, first, message=b"theirs\n")
    url = case.rng.choice([case.canary.git_url, str(case.folder / "outside/theirs.git"),
        f"ext::{case.marker('submodule')}"])
    name = case.rng.choice(["fleets", "../../outside/x", "fleets\x1b[2J", "-x"])
    case.files["fleets"] = Entry(SUBMODULE, id=commit)
    case.files[".gitmodules"] = Entry(FILE, f'[submodule "{name}"]\n\tpath = fleets\n\turl = {url}\n\tupdate = !'
                                            f'{case.marker("submodule.update")}\n\tignore = none\n'.encode())
    case.no_head, case.head, case.own_branch = True, None, False

    def check_out() -> None:
        modules = case.git / "modules/fleets"
        _unpack(case, {"HEAD": f"{commit}\n".encode(), "refs/heads/main": f"{first}\n".encode(),
                       "refs/remotes/origin/main": f"{first}\n".encode(),
                       "config": (case.git / "config").read_bytes() + b"[core]\n\tworktree = ../../../fleets\n"},
                       modules)
        shutil.copytree(theirs.folder, modules / "objects")
        folder = case.top / "fleets"
        folder.mkdir(exist_ok=True)
        for path, entry in inside.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(entry.data)
        _free(folder / ".git").write_text("gitdir: ../.git/modules/fleets\n")
        with (case.git / "config").open("a") as config:
            config.write(f'[submodule "fleets"]\n\tactive = true\n\turl = {url}\n')

    case.later.append(check_out)


@kind("repository")
def a_configuration_of_the_checkout_that_names_programs(case: Case) -> None:
    """An earlier job on the same runner has written it."""
    case.files[".gitattributes"] = Entry(FILE, b"* filter=x diff=x merge=x\n")

    def configure() -> None:
        text = programs(case, f"{case.git}/hooks") + case.rng.choice(["", partial(case)])
        if case.rng.random() < 0.3:
            (case.git / "more").write_text(text)
            text = "[include]\n\tpath = more\n"
        with (case.git / "config").open("a") as config:
            config.write(text)
        if case.rng.random() < 0.3:
            with (case.git / "config").open("a") as config:
                config.write("[extensions]\n\tworktreeConfig = true\n")
            (case.git / "config.worktree").write_text(programs(case, f"{case.git}/hooks"))
        _fill_hooks(case)
        if (case.top / FLEET_FILE).is_file():
            os.utime(case.top / FLEET_FILE, (1, 1))  # so that git has to read it, through its filters

    case.later.append(configure)


def _fill_hooks(case: Case) -> None:
    for hook in HOOKS:
        file = case.git / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{case.marker(hook)}\n")
        file.chmod(0o755)


@kind("repository")
def hooks_of_the_checkout(case: Case) -> None:
    case.may_run |= {"pre-push", "reference-transaction"}
    case.later.append(lambda: _fill_hooks(case))


@kind("repository")
def attributes_that_change_what_git_reads(case: Case) -> None:
    lines = ["* working-tree-encoding=UTF-16", "* ident", "* text eol=crlf", "* export-subst", "* filter=lfs diff=x",
             "* -text", "*.yaml text=auto encoding=utf-16", "[attr]x filter=x", "* " + "a" * 3000, "\x1b[2J filter=x"]
    text = "\n".join(case.rng.sample(lines, 4)).encode() + b"\n"
    case.later.append(lambda: _write(case.top / ".gitattributes", text))
    case.later.append(lambda: _write(case.top / "fleets/.gitattributes", text * case.rng.choice([1, 50_000])))


def _write(file: Path, data: bytes) -> None:
    if file.parent.is_file():
        return  # another kind has put a file in place of the folder
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


@kind("repository")
def replaced_objects_and_grafts(case: Case) -> None:
    """References that a mirror fetches along, and files of `.git` that lend a commit other parents."""

    def replace() -> None:
        store = case.store
        false = forged(case, store, "another commit")
        for name in (case.base, *case.history):
            what, _ = case.honest.read(name)
            other = {"commit": false, "blob": store.put("blob", fleet_text({**BASE, TOP_MODEL: 12}).encode())}.get(what)
            if other and case.rng.random() < 0.7:
                _write(case.git / "refs/replace" / name, f"{other}\n".encode())
        if case.rng.random() < 0.6:
            _write(case.git / "info/grafts", f"{case.merge} {false} {case.change}\n{case.change} {false}\n".encode())
        if case.rng.random() < 0.3:
            _write(case.git / "shallow", f"{case.merge}\n".encode())

    case.later.append(replace)


@kind("repository")
def a_reference_with_the_name_of_the_base(case: Case) -> None:
    """Whoever may push a branch or a tag of any name can do this; git prefers tags, and takes branches for commits."""

    def point() -> None:
        false = forged(case, case.store, "another commit")
        names = ["refs/tags/main", "refs/tags/origin/main", "refs/heads/origin/main", f"refs/heads/{case.base}",
                 f"refs/tags/{case.base}", "refs/heads/HEAD", "refs/tags/HEAD", "refs/heads/HEAD^1", "refs/main",
                 "refs/remotes/main/HEAD", "refs/tags/refs/heads/main"]
        for name in case.rng.sample([one for one in names if "^" not in one], 4):
            _write(case.git / name, f"{false}\n".encode())
        if case.rng.random() < 0.3:
            _write(case.git / case.rng.choice(["main", "ORIG_HEAD", "FETCH_HEAD"]), f"{false}\n".encode())

    case.later.append(point)


@kind("repository")
def odd_references(case: Case) -> None:
    def write() -> None:
        odd = ["refs/heads/-evil", "refs/heads/$(touch x)", "refs/heads/\u202eevil", "refs/heads/a;b|c",
               "refs/tags/%0a%0d::error", "refs/heads/##[error]x", "refs/heads/" + "x" * 200, "refs/heads/\udcff"]
        for name in odd:
            file = case.git / os.fsdecode(name.encode(errors="surrogateescape"))
            _write(file, f"{case.change}\n".encode())
        if case.rng.random() < 0.5:
            (case.git / "HEAD").write_text(f"ref: {case.rng.choice(odd[:-1])}\n")
            case.no_head = True
        elif case.rng.random() < 0.3:
            (case.git / "HEAD").write_text(case.rng.choice(["ref: refs/../../x\n", "ref: " + "x" * 5000, "",
                "\0" * 100]))
            case.no_head = True

    case.later.append(write)


@kind("repository")
def hundred_thousand_references(case: Case) -> None:
    def write() -> None:
        lines = "".join(f"{case.change} refs/heads/fleet-{number:06}\n" for number in range(100_000))
        _write(case.git / "packed-refs", b"# pack-refs with: peeled fully-peeled sorted \n" + lines.encode())
        case.base_names = [*case.base_names, "fleet-mistyped", "fleet-05000"]
        if case.rng.random() < 0.3:
            with (case.git / "packed-refs").open("a") as file:
                file.write("x" * (8 << 20))

    case.later.append(write)


@kind("repository")
def alternates(case: Case) -> None:
    """Objects from a committed folder, where one of them lies, or from anywhere on the machine."""
    store = Store(case.folder / "tmp/alternates", case.format)
    shutil.rmtree(store.folder, ignore_errors=True)
    forged(case, store, "under the true name")
    case.files |= {f"vendor/objects/{file.relative_to(store.folder).as_posix()}": Entry(FILE, file.read_bytes())
                   for file in store.folder.rglob("*") if file.is_file()}

    def lend() -> None:
        places = [f"{case.folder}/work/vendor/objects", "/etc", "/proc/self", f"{case.folder}/outside", "\x1b[2J", "."]
        _write(case.git / "objects/info/alternates", "\n".join(places).encode() * case.rng.choice([1, 1000]))
        if case.rng.random() < 0.7:  # as in a partial clone or a damaged one
            blob = next(name for name in case.history
                        if case.honest.read(name)[1] == fleet_text(BASE, case.cluster).encode())
            (case.git / "objects" / blob[:2] / blob[2:]).unlink(missing_ok=True)

    case.later.append(lend)


@kind("repository")
def an_environment_of_a_hook(case: Case) -> None:
    """Git sets these for its hooks, and they would override the repository of the files."""
    embed(case, "vendor/other", "\tbare = true\n", "another commit")
    other = f"{case.folder}/work/vendor/other"
    case.env |= case.rng.choice([
        {"GIT_DIR": other}, {"GIT_DIR": other, "GIT_WORK_TREE": f"{case.folder}/work"}, {"GIT_COMMON_DIR": other},
        {"GIT_OBJECT_DIRECTORY": f"{other}/objects"}, {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{other}/objects"},
        {"GIT_NAMESPACE": "x"}, {"GIT_INDEX_FILE": f"{other}/index"}, {"GIT_CEILING_DIRECTORIES": str(case.folder)},
        {"GIT_GRAFT_FILE": f"{other}/HEAD"}, {"GIT_SHALLOW_FILE": f"{other}/HEAD"},
        {"GIT_REPLACE_REF_BASE": "refs/heads"}, {"GIT_LITERAL_PATHSPECS": "1", "GIT_ICASE_PATHSPECS": "1"},
        {"GIT_DEFAULT_HASH": "sha256"}, {"GIT_QUARANTINE_PATH": other}, {"GIT_ATTR_SOURCE": "main",
        "GIT_INTERNAL_SUPER_PREFIX": "x"}])


@kind("repository")
def programs_and_modules_in_the_checkout(case: Case) -> None:
    """Names that Python or a shell would look for in the current folder."""
    case.fresh = True
    code = f"import os\nos.system({case.marker('python')!r})\n".encode()
    names = ["yaml", "typer", "httpx", "sitecustomize", "usercustomize", "json", "fleetctl/__init__", "rich/__init__",
             "fleetctl/watch/plan_process", "numpy/__init__", "_yaml", "pickle"]
    script = f"#!/bin/sh\n{case.marker('git')}\n".encode()
    for place in ("", "fleets/"):
        case.files |= {f"{place}{name}.py": Entry(FILE, code) for name in names}
        case.files |= {f"{place}{name}": Entry("100755", script) for name in ("git", "ssh", "python3", "sh")}
    case.files |= {".env": Entry(FILE, b"FLEETCTL_ADDRESS=http://127.1:1\n"), "pyproject.toml": Entry(FILE,
                   b"[tool.x]\n"), "pyvenv.cfg": Entry(FILE, b"home = .\n"), ".pythonrc.py": Entry(FILE, code)}


@kind("repository")
def another_cluster(case: Case) -> None:
    """The change names a cluster that its base does not: the canary."""
    case.address = case.canary.url
    if case.head is not None:
        case.write_head()


@kind("repository")
def another_cluster_over_tls(case: Case) -> None:
    case.address, case.only = case.canary.tls_url, {"ci review", "ci validate"}
    if case.head is not None:
        case.write_head()


@kind("place")
def a_worktree(case: Case) -> None:
    """The checkout is a further working tree of a clone elsewhere."""

    def move() -> None:
        clone = case.folder / "clone/.git"
        clone.parent.mkdir()
        case.git.rename(clone)
        _unpack(case, {"HEAD": (clone / "HEAD").read_bytes(), "commondir": b"../..\n",
                       "gitdir": f"{case.folder}/work/.git\n".encode(), "index": (clone / "index").read_bytes()},
                clone / "worktrees/work")
        (clone / "HEAD").write_text("ref: refs/heads/main\n")
        (case.top / ".git").write_text(f"gitdir: {clone}/worktrees/work\n")

    case.later.insert(0, move)


@kind("place")
def a_checkout_in_another_repository(case: Case) -> None:
    """The home folder is a repository, too, as some people have it."""

    def surround() -> None:
        store = Store(case.folder / ".git/objects", case.format)
        commit = store.commit(store.folders({"notes.txt": Entry(FILE, b"mine\n")}))
        version, more = (0, "") if case.format == "sha1" else (1, f"[extensions]\n\tobjectformat = {case.format}\n")
        _unpack(case, {"HEAD": b"ref: refs/heads/main\n", "refs/heads/main": f"{commit}\n".encode(),
                       "config": f"[core]\n\tbare = false\n\trepositoryformatversion = {version}\n{more}".encode()},
                case.folder / ".git")

    case.later.append(surround)


@kind("place")
def a_checkout_of_another_user(case: Case) -> None:
    """Git refuses it, unless the user's own configuration trusts it."""
    if os.geteuid() != 0:
        return

    def give() -> None:
        for path in [case.git, *case.git.rglob("*"), case.top, *case.top.rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        case.must_refuse = True

    case.later.append(give)


@kind("place")
def a_shallow_checkout(case: Case) -> None:
    case.later.append(lambda: _write(case.git / "shallow", f"{case.base}\n{case.change}\n".encode()))


@kind("place")
def a_checkout_with_sha256(case: Case) -> None:
    """Chosen when the case begins: `case.format`."""
