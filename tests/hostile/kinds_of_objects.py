"""Objects that lie or are huge, links, and names that no editor would let anyone type.

What no working tree can hold is in the commit `odd`, on top of the change.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from functools import cache

from tests.hostile.case import BASE, FLEET_FILE, TOP_MODEL, Case, fleet_text
from tests.hostile.kinds import kind
from tests.hostile.kinds_of_repositories import forged
from tests.hostile.objects import FILE, FOLDER, LINK, SUBMODULE, Entry, Pack, Row, Store

HUGE = 640 << 20
"""A file that takes 600 KiB, and more memory than a command may have."""


def odd(case: Case, **files: Entry) -> None:
    """Add files to the commit `odd`; `__` in a name is a slash, `_yaml` its end."""
    case.odd = {**(case.odd or {}), **{name.replace("__", "/").replace("_yaml", ".yaml"): one
                                       for name, one in files.items()}}


@kind("objects")
def a_file_of_zeros(case: Case) -> None:
    odd(case, fleets__big_yaml=Entry(FILE, id=case.store.zeros("blob", HUGE)))


@kind("objects")
def a_link_of_zeros(case: Case) -> None:
    odd(case, fleets__big_yaml=Entry(LINK, id=case.store.zeros("blob", HUGE)))


@kind("objects")
def a_huge_file_as_base_and_as_rules(case: Case) -> None:
    big = case.store.zeros("blob", HUGE)
    text = fleet_text(BASE, head="extends: ../common/big.yaml\n", spec="policy: {schemas: [../rules/big.json]}\n")
    odd(case, common__big_yaml=Entry(FILE, id=big), fleets__prod_yaml=Entry(FILE, text.encode()))
    assert case.odd is not None
    case.odd["rules/big.json"] = Entry(FILE, id=big)


@kind("objects")
def a_commit_and_a_tree_of_zeros(case: Case) -> None:
    zeros = case.store.zeros(case.rng.choice(["tree", "commit", "tag"]), HUGE)
    odd(case, fleets=Entry(FOLDER, id=zeros))
    case.base_names = [*case.base_names, zeros, f"{zeros}^{{commit}}"]


@kind("objects")
def a_fleet_folder_of_a_million_files(case: Case) -> None:
    blob = case.store.put("blob", b"")
    raw, name = _wide_tree(case.format, blob, case.many(1_000_000))
    case.store.write(name, raw)
    odd(case, fleets=Entry(FOLDER, id=name))


@cache
def _wide_tree(hash_name: str, blob: str, entries: int) -> tuple[bytes, str]:
    data = b"".join(b"100644 %07d.yaml\0" % number + bytes.fromhex(blob) for number in range(entries))
    whole = b"tree %d\0" % len(data) + data
    return zlib.compress(whole, 1), Store(None, hash_name).digest(whole)  # type: ignore[arg-type]


@kind("objects")
def a_tree_that_unfolds_to_billions_of_files(case: Case) -> None:
    """Ten levels, each with the next one ten times."""
    below = case.store.put("blob", b"")
    rows: list[Row] = [(FILE, b"%d.yaml" % number, below) for number in range(10)]
    for _ in range(10):
        below = case.store.tree(rows)
        rows = [(FOLDER, b"d%d" % number, below) for number in range(10)]
    odd(case, bomb=Entry(FOLDER, id=below))
    if case.rng.random() < 0.7:  # so that the old name of the fleet is looked for
        assert case.odd is not None
        case.odd[FLEET_FILE] = Entry(LINK, b"../bomb/d0/d0/d0/none.yaml")


@kind("objects")
def a_folder_ten_thousand_levels_deep(case: Case) -> None:
    below = case.store.put("tree", b"")
    for _ in range(case.many(10_000)):
        below = case.store.tree([(FOLDER, b"d", below)])
    odd(case, deep=Entry(FOLDER, id=below), fleets__deep_yaml=Entry(LINK,
        b"../deep/" + b"d/" * case.many(9_000) + b"x"))


@kind("objects")
def links_in_circles_and_long_ones(case: Case) -> None:
    more = {"fleets/self.yaml": b"self.yaml", "fleets/a.yaml": b"b.yaml", "fleets/b.yaml": b"a.yaml",
            "fleets/up.yaml": b"../" * 30 + b"etc/passwd", "fleets/long.yaml": b"../fleets/" * 380 + b"prod.yaml",
            "fleets/longer.yaml": b"a/../" * 40_000 + b"prod.yaml", "fleets/zero.yaml": b"pro\0d.yaml",
            "fleets/line.yaml": b"prod\n::error::x.yaml", "fleets/odd.yaml": b"\xff\xfe\x1b[2J.yaml",
            "fleets/none.yaml": b"", "fleets/loop.yaml": b"../loop/loop/loop/prod.yaml", "loop": b"."}
    more |= {f"fleets/l{number}.yaml": b"l%d.yaml" % (number + 1) for number in range(60)}
    chosen = case.rng.sample(sorted(more), 3)
    odd(case, **{name.replace("/", "__").replace(".yaml", "_yaml"): Entry(LINK, more[name])
                 for name in [*chosen,
                     *(one for one in more if one.startswith("fleets/l") and case.rng.random() < 0.5)]})


@kind("objects")
def links_on_the_disk(case: Case) -> None:
    targets = ["../../outside/neighbor.yaml", str(case.folder / "outside/neighbor.yaml"), "/proc/self/environ",
               "/dev/zero", "/dev/stdin", "../.git/config", "../.git/HEAD", "/proc/self/fd/0", "../../home/.gitconfig",
               "more.yaml", "../fleets", "/dev/tty", "../docs", "/etc/passwd", "/proc/kmsg"]
    for number, target in enumerate(case.rng.sample(targets, 2)):
        case.files[f"fleets/link{number}.yaml"] = Entry(LINK, target.encode())
    case.head = None


@kind("objects")
def the_fleet_as_a_link_out(case: Case) -> None:
    """What `propose` writes must not go through it."""
    case.files[FLEET_FILE] = Entry(LINK, case.rng.choice([
        b"../../outside/fleet.yaml", b"../.git/fleet.yaml", b"../vendor/fleet.yaml"]))
    text = fleet_text(BASE, case.cluster).encode()
    case.files["vendor/fleet.yaml"] = Entry(LINK, b"../../outside/fleet.yaml")
    (case.folder / "outside/fleet.yaml").write_bytes(text)
    case.later.append(lambda: (case.git / "fleet.yaml").write_bytes(text) and None)
    case.head, case.no_head = None, True


@kind("objects")
def folders_in_place_of_files(case: Case) -> None:
    if case.rng.random() < 0.5:
        del case.files[FLEET_FILE]
        case.files["fleets/prod.yaml/x.yaml"] = Entry(FILE, b"")
    else:
        for path in [path for path in case.files if path.startswith("fleets/")]:
            del case.files[path]
        case.files["fleets"] = Entry(FILE, fleet_text(BASE).encode())
    case.head, case.no_head = None, True


@kind("objects")
def names_of_every_sort(case: Case) -> None:
    names = ["\x1b[2J\x1b]0;x\x07.yaml", "::error::x.yaml", "##[error]x.yaml", "a\nb.yaml", "\u202egnp.yaml",
             "\ufeff.yaml", "-f.yaml", "--help.yaml", "$(touch x).yaml", "`x`.yaml", "%0A::stop-commands::x.yaml",
             "a\rb.yaml", "con.yaml", " .yaml", "x" * 240 + ".yaml", "'\".yaml", "<img src=x>.yaml", "@org.yaml",
             "\x85.yaml", "\x9b2J.yaml"]
    for name in case.rng.sample(names, 5):
        text = case.rng.choice(["", "key: [", fleet_text({f"m/{len(name)}": 0})])
        case.files[f"fleets/{name}"] = Entry(FILE, text.encode())
    case.head = None


@kind("objects")
def names_that_no_tree_has(case: Case) -> None:
    blob = case.store.put("blob", fleet_text({**BASE, TOP_MODEL: 12}).encode())
    folder = case.store.tree([(FILE, b"prod.yaml", blob)])
    rows: list[Row] = [
        (FILE, b"fleets/prod.yaml", blob), (FILE, b"..", blob), (FOLDER, b"..", folder), (FOLDER, b".", folder),
        (FOLDER, b".git", folder), (FILE, b"", blob), (FOLDER, b"fleets", folder), (FILE, b"fleets", blob),
        (FILE, b"\xff\xfe.yaml", blob), (SUBMODULE, b"fleets", blob), ("0100644", b"zero", blob), ("777777", b"mode",
        blob), (FILE, b"a\nb.yaml", blob), (FILE, b"a\tb.yaml", blob), (FILE, b"x" * 5000 + b".yaml", blob), (LINK,
        b"fleets", blob)]
    odd(case)
    case.store.hidden.clear()
    inside = Store(case.server / "objects", case.format)
    inside.hidden[case.rng.choice(["", "fleets"])] = case.rng.sample(rows, 4)
    tree = inside.folders(case.files)
    odd(case, x=Entry(FOLDER, id=tree), y=Entry(SUBMODULE, id=tree))
    case.later.append(lambda: _point_odd(case, case.store.commit(tree, case.change)))


def _point_odd(case: Case, commit: str) -> None:
    (case.git / "refs/heads/odd").write_text(f"{commit}\n")


@kind("objects")
def commits_and_tags_of_every_sort(case: Case) -> None:
    odd(case, more=Entry(FILE, b""))

    def write() -> None:
        store, tree = case.store, case.store.folders(case.files)
        which = case.rng.randrange(6)
        if which == 0:
            commit = store.commit(tree, case.change, message=b"\x1b[2J::error::x\n" * case.many(3_000_000))
        elif which == 1:
            commit = store.commit(tree, *[case.change] * case.many(100_000))
        elif which == 2:
            commit = store.put("commit", b"tree " + b"0" * 40 + b"\n")
        elif which == 3:
            lines = [f"tree {tree}", f"parent {case.change}", "author \x1b[2J <x> 99999999999999999999 +9999",
                     "encoding utf-99", f"gpgsig {'x' * 9999}", "", ""]
            commit = store.put("commit", "\n".join(lines).encode())
        elif which == 4:
            commit = store.put("commit", b"")
        else:
            commit = case.change
            for number in range(case.many(3_000)):
                commit = store.put("tag",
                    f"object {commit}\ntype {'tag' if number else 'commit'}\ntag t\n\nx\n".encode())
        _point_odd(case, commit)
        case.base_names = [*case.base_names, "odd", "odd..."]

    case.later.append(write)


@kind("objects")
def false_objects_in_the_checkout(case: Case) -> None:
    """The clone's own objects of the base: one or all of them say something else than their ids."""
    how = case.rng.choice(["under the true name", "in a pack", "only the file", "only the tree", "only the commit"])

    def lie() -> None:
        store = case.store
        false = fleet_text({**BASE, TOP_MODEL: 12}, case.address or case.cluster).encode()
        own = [(name, *case.honest.read(name)) for name in case.history]
        true_blob = next(name for name, _, data in own if data == fleet_text(BASE, case.cluster).encode())
        if how.startswith("only"):
            blob = store.put("blob", false)
            tree = store.folders({**case.files, FLEET_FILE: Entry(FILE, id=blob)})
            if how == "only the file":
                store.lie(true_blob, "blob", false)
            elif how == "only the tree":
                top = case.honest.read(case.base)[1].split()[1].decode()
                store.lie(top, *store.read(tree))
            else:
                store.lie(case.base, *store.read(store.commit(tree)))
            return
        if how == "in a pack":
            for name in case.history:
                (store.folder / name[:2] / name[2:]).unlink(missing_ok=True)
        forged(case, store, how)

    case.later.append(lie)


@kind("objects")
def objects_with_false_headers(case: Case) -> None:
    blob = case.store.put("blob", b"\n# odd\n" * 10)
    odd(case, fleets__odd_yaml=Entry(FILE, id=blob))
    which = case.rng.randrange(8)

    def lie() -> None:
        store = case.store
        bomb = zlib.compressobj(1)
        packed = bomb.compress(b"blob 10\0" + bytes(HUGE >> 2)) + bomb.flush()
        raw = [packed, zlib.compress(b"blob 999999999999999999999\0x"), zlib.compress(b"blob -1\0x"),
               zlib.compress(b"blob"), b"", b"\0" * 100, zlib.compress(b"blob 7\0")[:-3],
               zlib.compress(b"\x1b[2J::error::x 3\0abc")][which]
        store.write(blob, raw)

    case.later.append(lie)


@kind("objects")
def a_delta_of_gigabytes(case: Case) -> None:
    small = case.store.put("blob", b"#" * 60_000)
    name = case.store.digest(b"a name that nothing has")
    mode = case.rng.choice([FILE, LINK])
    odd(case, more=Entry(FILE, b""))

    def pack() -> None:
        made = Pack(case.format)
        made.add(small, "blob", b"#" * 60_000)
        made.add_delta(name, small, 60_000, 40_000)
        made.save(case.git / "objects")
        tree = case.store.folders({**case.files, "fleets/big.yaml": Entry(mode, id=name)})
        _point_odd(case, case.store.commit(tree, case.change))

    case.later.append(pack)


@kind("objects")
def a_commit_graph_that_lies(case: Case) -> None:
    """Git takes parents and trees of commits from it, and hashes nothing."""

    def write() -> None:
        store = case.store
        false = forged(case, store, "another commit")
        false_tree = store.read(false)[1].split()[1].decode()
        _, merge = case.honest.read(case.merge)
        tree = merge.split()[1].decode()
        rows = sorted([(case.base, false_tree, []), (case.merge, tree, [case.base, case.change]), (false, false_tree,
                       []), (case.change, tree, [false])])
        if case.rng.random() < 0.5:
            rows = [(name, one, [false if parent == case.base else parent for parent in parents])
                    for name, one, parents in rows]
        _write_graph(case, rows)

    case.later.append(write)


def _write_graph(case: Case, rows: list[tuple[str, str, list[str]]]) -> None:
    names = [name for name, _, _ in rows]
    fanout = b"".join(struct.pack(">I", sum(int(name[:2], 16) <= first for name in names)) for first in range(256))
    data = b"".join(
        bytes.fromhex(tree) + struct.pack(">IIII", *[names.index(one) for one in parents],
        *[0x70000000] * (2 - len(parents)),
                                          (1 if not parents else 2) << 2, 1_700_000_000)
        for _, tree, parents in rows)
    chunks = [(b"OIDF", fanout), (b"OIDL", b"".join(map(bytes.fromhex, names))), (b"CDAT", data)]
    at, table = 8 + 12 * (len(chunks) + 1), b""
    for name, content in chunks:
        table += name + struct.pack(">Q", at)
        at += len(content)
    whole = (b"CGPH" + bytes([1, 1 if case.format == "sha1" else 2, len(chunks), 0]) + table + bytes(4)
             + struct.pack(">Q", at) + b"".join(content for _, content in chunks))
    digest = bytes.fromhex(Store(case.git, case.format).digest(whole))
    file = case.git / "objects/info/commit-graph"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(whole + digest)


@kind("objects")
def a_missing_base(case: Case) -> None:
    """The objects of the base are not there, as after a fetch that failed half way."""

    def remove() -> None:
        for name in case.rng.sample(case.history, 2):
            (case.git / "objects" / name[:2] / name[2:]).unlink(missing_ok=True)
        shutil.rmtree(case.git / "objects/pack", ignore_errors=True)

    case.later.append(remove)


@kind("objects")
def a_sparse_file_of_gigabytes(case: Case) -> None:
    def extend() -> None:
        with (case.top / "fleets/huge.yaml").open("wb") as file:
            file.truncate(8 << 30)

    case.later.append(extend)
    case.head = None


@kind("objects")
def files_that_cannot_be_committed(case: Case) -> None:
    def make() -> None:
        os.mkfifo(case.top / "fleets/pipe.yaml")
        os.mkfifo(case.top / "rules/pipe.json")

    case.later.append(make)
    case.head = None
