"""Fetch an artifact, or a view of it, to this node: from disk, a peer's view, a peer's files, or an origin.

Files are verified piece by piece and renamed when complete; an interrupted fetch is resumed. If a source is
interrupted, slow, or sends wrong bytes, the fetch reports it and goes on with the next one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import resource
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..messages import WeightSource
from ..own_files import open_own, replace_own
from ..report import utc_now
from .check import CheckResult, Verified, check_changed, check_small
from .gather import Canonical, WrongPiece, layout_of, make_view
from .index import NAME, PIECE, File, Index, WeightsError, read_index
from .protocol import Peer, ViewRequest
from .sources import IDLE_S, FetchLimits, Left, Origin, SourceBroke, SourceBusy, SourceFailed, Stream, origins_of
from .store import Entry, OutOfTime, Wrong, link_or_copy, require_own_folder
from .views import View, files_view, view_id

BUSY_S = 0.5
MOST_WAITS = 8
"""Busy sources are retried after BUSY_S, then 2 * BUSY_S, and so on up to MOST_WAITS * BUSY_S."""
LOOK_S = 2.0
"""Pause between looks for a source while one restarts."""
MOST_OTHERS = 8
"""How many suggested sources are tried in one round; after that many of them have failed, suggestions are ignored."""
SLICE = 1 << 20
WINDOW_S, LEAST_BYTES_S = 20.0, float(1 << 20)
"""A source is slow if it sends fewer bytes per second than this over WINDOW_S seconds of reading."""


class Wanted(NamedTuple):
    """The weights a member needs. Variables in `view` and `origins` are replaced; `sources` = the planned peers."""

    artifact: str
    view: Optional[View]
    rank: int
    size: int
    origins: Sequence[Mapping[str, str]]
    sources: Sequence[WeightSource]
    secret: bytes = b""


class Fetched(NamedTuple):
    """The result of a fetch: `held` = the index of `entry`, `artifact` = that of the whole artifact.

    `whole` = the artifact's own files, if they are on this node. `source` (disk, peer, origin) and `name` = the source
    of most bytes. `size` = bytes received, `reused` = bytes that were on disk before, `left` = sources that failed.
    """

    entry: Entry
    artifact: Index
    held: Index
    whole: Optional[Canonical]
    source: str
    name: str
    size: int
    seconds: float
    reused: int
    left: List[Left]
    suppliers: Sequence[str] = ()
    """The addresses of the peers that sent any of it."""


class ServingNow(NamedTuple):
    """The replicas that serve an artifact now, each with the time since when, and those of which an engine restarts."""

    ready: Sequence[Tuple[WeightSource, str]] = ()
    restarting: Sequence[str] = ()


class Fetch(FetchLimits):
    """One fetch, until `deadline` on `clock`. `say` gets a message for each source that fails.

    `look` returns who serves the artifact now: the given replicas, or all. A plan may be older than a replica's port.
    """

    def __init__(self, root: str, wanted: Wanted, deadline: float, say: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic,
                 look: Callable[[Sequence[str]], ServingNow] = lambda _: ServingNow()) -> None:
        self._root, self._wanted, self.deadline = root, wanted, deadline
        self._say, self._clock, self._look = say, clock, look
        self._tried: Set[Tuple[str, str]] = set()
        """The addresses of all peers, each with the time since when it serves."""
        self._asked = ""
        self._peers = [Peer(source, wanted.artifact, wanted.secret) for source in self._as_they_are(wanted.sources)]
        self._others: List[Peer] = []
        """Peers suggested by busy peers."""
        self._origins, self._left = origins_of(wanted.origins)
        for source in self._all():
            source.limits = self
        self._origins_from = clock() + (deadline - clock()) / 2
        self._failed: List[Origin] = []
        self._interrupted: List[Origin] = []
        self._bytes_from: Dict[Origin, int] = {}
        self._reused = 0
        self._verified = Verified(root, wanted.artifact, wanted.secret)
        self._trusted: Set[str] = set()
        """The verified files of the entry that is being filled: they are not read."""
        self.kept: List[Entry] = []
        """Entries that are protected from removal until the caller releases them."""
        self.found: List[CheckResult] = []
        """The files of complete entries that were wrong, and so were fetched again."""
        self._whole: Optional[Canonical] = None
        self._window_s, self._window_bytes = 0.0, 0
        self._buffer = memoryview(bytearray(SLICE))  # one buffer for all reads: allocating costs more than the copy

    def _as_they_are(self, planned: Sequence[WeightSource]) -> List[WeightSource]:
        """Return the planned sources where they serve now: one that has restarted has another port."""
        ready = self._look([source.replica for source in planned]).ready if planned else ()
        found: List[WeightSource] = []
        for source in planned:
            here = [(now, since) for now, since in ready if now.replica == source.replica
                    and (now.view == source.view or now.whole)]
            host = source.address.rpartition(":")[0]
            here.sort(key=lambda peer: (peer[0].address != source.address, peer[0].address.rpartition(":")[0] != host))
            now, since = here[0] if here else (source, "")
            if now.address != source.address:
                self._say(f"weights: {source.replica} serves at {now.address} now, and not at {source.address}")
            self._tried.add((now.address, since))
            found.append(now)
        return found

    def _found_again(self, view: Optional[str]) -> bool:
        """Return whether there is a source of the view, or of all files, that has not been tried.

        Waits while a replica with the artifact restarts: nothing else has the bytes.
        """
        said = False
        while True:
            serving = self._look(())
            new = [replica for replica in serving.ready if (replica[0].address, replica[1]) not in self._tried]
            for source, since in new:
                self._tried.add((source.address, since))
                peer = Peer(source, self._wanted.artifact, self._wanted.secret)
                peer.limits = self
                self._peers.append(peer)
            if any(source.whole or source.view == view for source, _ in new):
                return True
            self._require_time()
            if not serving.restarting:
                return False
            if not said:
                self._say(f"weights: nothing else has them: waiting for {', '.join(serving.restarting)} to restart")
            said = True
            time.sleep(LOOK_S)

    def _all(self) -> List[Origin]:
        return [*self._peers, *self._others, *self._origins]

    def timeout(self) -> float:
        """Return the seconds for which a source may send nothing."""
        self._require_time()
        return max(0.1, min(IDLE_S, self.deadline - self._clock()))

    def patience(self) -> float:
        """Return the seconds for which a file system may hang: all that is left, if it is the only source."""
        others = len(self._all()) - len(self._failed) > 1
        return self.timeout() if others else max(0.1, self.deadline - self._clock())

    def received(self, size: int, seconds: float) -> None:
        """Count received bytes; raises SourceBroke if the source is slow and there is another one."""
        self._require_time()
        self._window_s += seconds
        self._window_bytes += size
        if self._window_s >= WINDOW_S:
            rate = self._window_bytes / self._window_s
            self._window_s, self._window_bytes = 0.0, 0
            if rate < LEAST_BYTES_S and len(self._all()) - len(self._failed) > 1:
                raise SourceBroke(f"too slow: {rate / (1 << 20):.2f} MiB/s")

    def _require_time(self) -> None:
        if self._clock() >= self.deadline:
            raise OutOfTime(f"the weights were not complete in time{self.waits_for()}{self._failures()}")

    def waits_for(self) -> str:
        """Return the source that was asked last, as text; empty if none was."""
        return f" (asked last: {self._asked})" if self._asked else ""

    def run(self) -> Fetched:
        """Run the fetch; raises WeightsError, or OutOfTime at the deadline."""
        begun = self._clock()
        for name, why in self._left:
            self._say(f"weights: skipping {name}: {why}")
        try:
            require_own_folder(self._root, self._wanted.artifact)
            index = self._index()
            view = self._view()
            entry = self._entry(view)
            held = self._fill_entry(entry, index)
            if self._whole is None and (view is None or self._entry(None).index() is not None):
                self._whole = Canonical(self._entry(None), index)
        except BaseException as error:
            for kept in self.kept:
                kept.release()
            if isinstance(error, OSError):
                raise WeightsError(_cause(error)) from None
            raise
        finally:
            for source in self._all():
                source.close()
        main = max(self._bytes_from, key=self._bytes_from.__getitem__, default=None)
        size = sum(self._bytes_from.values())
        return Fetched(entry, index, held, self._whole, main.kind if main else "disk",
                       main.name if main else self._root, size, self._clock() - begun, self._reused, self._left,
                       [source.address for source in self._bytes_from if isinstance(source, Peer)])

    def _view(self) -> Optional[str]:
        wanted = self._wanted
        return view_id(wanted.view, wanted.rank, wanted.size, wanted.artifact)

    def _entry(self, name: Optional[str]) -> Entry:
        return Entry(self._root, self._wanted.artifact, name)

    def _index(self) -> Index:
        """Return the artifact's index, from disk or from the first source whose index has the right hash."""
        kept = os.path.join(self._root, self._wanted.artifact, NAME)
        try:
            with open(kept, "rb") as file:
                return read_index(file.read(), self._wanted.artifact)
        except (OSError, WeightsError):
            pass
        while True:
            for source in self._in_turn(self._all()):
                try:
                    data = source.index()
                    index = read_index(data, self._wanted.artifact)
                except SourceBusy:
                    continue
                except OutOfTime:
                    raise
                except (SourceFailed, WeightsError) as error:
                    self._fail(source, error)
                    continue
                os.makedirs(os.path.dirname(kept), exist_ok=True)
                replace_own(kept, data, 0o644)
                return index
            if not self._found_again(self._view()):
                break
        raise WeightsError(f"no source has the index{self._failures()}")

    def _fill_entry(self, entry: Entry, index: Index) -> Index:
        """Complete `entry` and return its index."""
        view = self._wanted.view if entry.view else None
        wrong = entry.wrong() or entry.replaced()
        if wrong:
            self._take_wrong(entry, wrong)
        entry.keep()
        self.kept.append(entry)
        with entry.writing(self.deadline, self._clock):
            if view is None:
                return self._fill_files(entry, index)
            if view.files is not None:
                return self._fill_files(entry, files_view(index, view.files))
            return self._fill_tensors(entry, index, view)

    def _fill_files(self, entry: Entry, goal: Index) -> Index:
        """Complete an entry of whole files: the artifact itself, or a view by file names."""
        if entry.index() != goal or self._is_wrong(entry, goal):
            whole = self._entry(None)
            if not entry.view or whole.index() is None or (entry.wrong() and self._is_wrong(whole, goal, small=False)):
                self._fill(entry, goal)
                self._whole = None if entry.view else Canonical(entry, goal).trust()
                return goal
            with self._verified.linking(whole.path(file.path) for file in goal.files):
                for file in goal.files:
                    link_or_copy(whole.path(file.path), entry.part_path(file.path))
                entry.complete(goal)
        self._reused += goal.size
        return goal

    def _is_wrong(self, entry: Entry, index: Index, *, small: bool = True) -> bool:
        """Return whether a file of a complete entry has changed since it was verified; `small` = look at small ones.

        A start waits for no more than that: larger files are hashed once the engine is ready.
        """
        wrong = (check_small if small else check_changed)(entry, index, self._verified)
        if wrong:
            self._take_wrong(entry, wrong)
        return bool(wrong)

    def _take_wrong(self, entry: Entry, wrong: Wrong) -> None:
        self.found.append(CheckResult("fetched", entry, wrong))
        self._say(f"weights: {wrong.path} on this node is not what the index says ({wrong.reason}): fetching it again")

    def _fill_tensors(self, entry: Entry, index: Index, view: View) -> Index:
        """Complete a view by tensors: fetch it from a peer, or make it from the artifact's own files."""
        held, whole = entry.index(), self._entry(None)
        if held is not None and not self._is_wrong(entry, held):
            self._reused += held.size
            return held
        while whole.index() is None:
            fetched = self._fetch_view(entry, view)
            if fetched is not None:
                return fetched
            others = [source for source in (*self._peers_with(None), *self._origins) if source not in self._failed]
            if others or not self._found_again(entry.view):
                break
        try:
            return self._make(entry, index, view)
        except WrongPiece as wrong:
            whole.mark_wrong(Wrong(wrong.path, wrong.piece, "its content has changed", utc_now()))
            self._whole = None
            return self._make(entry, index, view)

    def _make(self, entry: Entry, index: Index, view: View) -> Index:
        """Make a view by tensors, after completing the artifact's own files; raises WrongPiece."""
        whole = self._entry(None)
        self._fill_entry(whole, index)
        self._whole = self._whole or Canonical(whole, index)
        layout = layout_of(whole, index, view, self._wanted.rank, self._wanted.size)
        made = make_view(whole, self._whole, index, layout, entry, self._verified)
        entry.record(made)
        return made

    def _peers_with(self, view: Optional[str]) -> List[Origin]:
        return [peer for peer in self._peers if peer.whole or peer.view == view]

    def _fetch_view(self, entry: Entry, view: View) -> Optional[Index]:
        """Fetch a view by tensors from a peer that has it or makes it; None = no peer supplied it."""
        request = ViewRequest(view, self._wanted.rank, self._wanted.size)
        assert entry.view is not None
        refused: List[Origin] = []
        begun: Optional[Index] = None
        for peer in self._in_turn(self._peers_with(entry.view), refused):
            assert isinstance(peer, Peer)
            try:
                goal = peer.view_index(entry.view, request)
                if goal != begun:
                    begun, ready = goal, self._verified_pieces(entry, goal)
                peer.read_from(entry.view)
                self._read(entry, peer, goal, ready)
                return goal
            except SourceBusy:
                continue
            except SourceFailed as error:
                refused.append(peer)
                self._say(f"weights: no view from {peer.name}: {error}")
        return None

    def _fill(self, entry: Entry, goal: Index) -> None:
        """Read the missing files of `goal` from the first sources that supply them.

        When all sources have failed, retry the interrupted ones as long as each round brings new pieces.
        """
        ready = self._verified_pieces(entry, goal)
        while True:
            before = sum(ready.values())
            for source in self._in_turn([*self._peers_with(entry.view), *self._origins]):
                if isinstance(source, Peer):
                    source.read_from(entry.view if source.view == entry.view else None, entry.view)
                try:
                    return self._read(entry, source, goal, ready)
                except SourceBusy:
                    pass
                except SourceFailed as error:
                    self._fail(source, error)
                source.close()
            if sum(ready.values()) == before or not self._interrupted:
                if self._found_again(entry.view):
                    continue
                raise WeightsError(f"no source supplied all files{self._failures()}")
            self._failed = [source for source in self._failed if source not in self._interrupted]
            self._interrupted.clear()

    def _verified_pieces(self, entry: Entry, goal: Index) -> Dict[str, int]:
        """Return how many pieces of each file are on disk; raises WeightsError if the rest does not fit on it."""
        in_place = os.path.isdir(entry.folder) and entry.is_plain(goal)
        due = {file.path for file in (self._verified.due(entry, goal, unread=False) if in_place else goal.files)}
        self._trusted = {file.path for file in goal.files} - due
        for path in self._trusted:
            with contextlib.suppress(FileNotFoundError):
                os.remove(entry.part_path(path))
        ready = {file.path: entry.verified_part(file) if file.path in due else len(file.chunks) for file in goal.files}
        size = sum(min(ready[file.path] * PIECE, file.size) for file in goal.files)
        self._reused += size
        entry.require_room(goal.size - size)
        return ready

    def _read(self, entry: Entry, source: Origin, goal: Index, ready: Dict[str, int]) -> None:
        """Read all missing pieces from one source and complete the entry."""
        for file in goal.files:
            self._read_file(entry, source, file, ready)
        entry.complete(goal)
        self._verified.add(entry, [file for file in goal.files if file.path not in self._trusted])

    def _read_file(self, entry: Entry, source: Origin, file: File, ready: Dict[str, int]) -> None:
        """Read the missing pieces of a file; `ready` counts the verified ones."""
        if ready[file.path] == len(file.chunks):
            return
        start = ready[file.path] * PIECE
        with source.open(file.path, start) as stream, open(
                open_own(entry.part_path(file.path), os.O_RDWR), "r+b") as out:
            for number in range(ready[file.path], len(file.chunks)):
                out.seek(number * PIECE)
                self._read_piece(stream, out, file, number, source)
                ready[file.path] = number + 1

    def _read_piece(self, stream: Stream, out: Any, file: File, number: int, source: Origin) -> None:
        """Read one piece into the part file. A piece with a wrong hash raises SourceFailed and is overwritten later."""
        buffer, hashed = self._buffer, hashlib.sha256()
        at, end = number * PIECE, min((number + 1) * PIECE, file.size)
        while at < end:
            size = stream.readinto(buffer[:end - at])
            if not size:
                raise SourceBroke(f"{file.path}: ended after {at} of {file.size} bytes")
            hashed.update(buffer[:size])
            out.write(buffer[:size])
            at += size
            self._bytes_from[source] = self._bytes_from.get(source, 0) + size
        if hashed.hexdigest() != file.chunks[number]:
            source.report_wrong(file.path)
            raise SourceFailed(f"{file.path}: piece {number} does not match the index")

    def _in_turn(self, sources: Sequence[Origin], refused: Sequence[Origin] = ()) -> Iterator[Origin]:
        """Yield the usable sources in order. Busy peers are yielded again, with waits in between, before any origin.

        Waiting is cheaper than an origin, so busy peers are retried for half of the time before the deadline.
        """
        peers, others = [source for source in sources if source.kind == "peer"], list[Origin]()
        for waits in itertools.count(1):
            self._require_time()
            yield from self._peers_in_turn(peers, others, refused)
            busy = any(self._usable(peer, refused) for peer in (*peers, *others))
            use_origins = not busy or self._clock() >= self._origins_from
            if use_origins:
                yield from self._usable_of((source for source in sources if source.kind != "peer"), refused)
            if not busy or (use_origins and any(origin not in self._failed for origin in self._origins)):
                return
            time.sleep(BUSY_S * min(waits, MOST_WAITS))

    def _peers_in_turn(self, peers: List[Origin], others: List[Origin], refused: Sequence[Origin]) -> Iterator[Origin]:
        """Yield the peers and, after a busy one, the sources it suggests, which may suggest more.

        `others` = the suggested sources of the previous round; updated to those of this round.
        """
        queue, suggested = [*peers, *others], list[Origin]()
        while queue:
            for peer in self._usable_of([queue.pop(0)], refused):
                yield peer
                new = [other for other in self._suggested_by(peer) if other not in (*peers, *suggested)]
                new = new[:MOST_OTHERS - len(suggested)]
                suggested += new
                queue = [*new, *(other for other in queue if other not in new)]
        others[:] = suggested or others

    def _suggested_by(self, peer: Origin) -> List[Origin]:
        """Return the sources that a busy peer has suggested; each address is one Peer for the whole fetch."""
        if not isinstance(peer, Peer) or sum(other in self._failed for other in self._others) >= MOST_OTHERS:
            return []
        sources, peer.others = peer.others, []
        by_address = {known.address: known for known in (*self._others, *self._peers)}
        for source in sources:
            if source.address not in by_address:
                by_address[source.address] = other = Peer(source, self._wanted.artifact, self._wanted.secret)
                other.limits = self
                self._others.append(other)
        return [by_address[source.address] for source in sources]

    def _usable_of(self, sources: Iterable[Origin], refused: Sequence[Origin]) -> Iterator[Origin]:
        for source in sources:
            if self._usable(source, refused):
                self._window_s, self._window_bytes, self._asked = 0.0, 0, source.name
                yield source

    def _usable(self, source: Origin, refused: Sequence[Origin]) -> bool:
        return source not in self._failed and source not in refused

    def _fail(self, source: Origin, why: Exception) -> None:
        self._failed.append(source)
        if isinstance(why, SourceBroke):
            self._interrupted.append(source)
        self._left.append((source.name, str(why)))
        self._say(f"weights: giving up on {source.name}: {why}")

    def _failures(self) -> str:
        return "".join(f"; {name}: {why}" for name, why in self._left)


def _cause(error: OSError) -> str:
    """Return what is to blame: the disk, unless it is a limit on open files."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"a process here may open only {limit} files: raise `ulimit -n` where `ray start` runs on this node"
    if error.errno == errno.ENFILE:
        return "all processes of this node together have too many open files: raise fs.file-max there"
    return f"this node's disk: {error}"


def on_disk(root: str, artifact: str, view: Optional[str]) -> Fetched:
    """Return weights that are complete on this node, and protect them from removal; raises WeightsError."""
    require_own_folder(root, artifact)
    entry, whole = Entry(root, artifact, view), Entry(root, artifact, None)
    entry.keep()
    held = entry.index()
    if held is None:
        raise WeightsError(f"{entry.folder} is not complete")
    try:
        with open(os.path.join(root, artifact, NAME), "rb") as file:
            index = read_index(file.read(), artifact)
    except OSError as error:
        raise WeightsError(f"the index of {artifact[:12]} is not on this node: {error}") from None
    canonical = Canonical(whole, index) if whole.index() is not None else None
    return Fetched(entry, index, held, canonical, "disk", root, 0, 0.0, held.size, [])
