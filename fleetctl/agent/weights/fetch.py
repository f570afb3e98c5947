"""Get an artifact, or a view of it, onto this node: disk, then a peer's view, a peer's files, an origin.

What comes is verified piece by piece before it is written, goes on where an earlier fetch ended, and is renamed when it
is complete. A source that breaks off, lies or is slow is left for the next one, and named.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from .gather import Canonical, layout_of, make_view
from .index import NAME, PIECE, File, Index, WeightsError, read_index
from .peers import Peer
from .sources import IDLE_S, Left, Limits, Origin, SourceBroke, SourceBusy, SourceFailed, Stream, origins_of
from .store import Entry, OutOfTime, link_or_copy
from .views import files_view, view_id

BUSY_S = 0.5
MOST_WAITS = 8
"""A busy source is asked again after BUSY_S, then after twice as long, up to so many times."""
MOST_OTHERS = 8
"""How many others that busy sources name are asked at a time; when so many were left, no more are."""
SLICE = 1 << 20
WINDOW_S, LEAST_BYTES_S = 20.0, float(1 << 20)
"""A source is slow that gave less than this over so many seconds of waiting for it."""


class Wanted(NamedTuple):
    """What a member needs. `view` and `origins` have their variables replaced; `sources` = the planned peers."""

    artifact: str
    view: Optional[Mapping[str, Any]]
    rank: int
    size: int
    origins: List[Mapping[str, str]]
    sources: List[Mapping[str, Any]]
    secret: bytes = b""


class Fetched(NamedTuple):
    """What is on the node now. `artifact`, `held`: index of all, and of the folder; `whole` = all is here too."""

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
    givers: Sequence[str] = ()
    """The addresses of the peers that gave some of it."""


class Fetch(Limits):
    """One fetch, until `deadline` on `clock`. `say` gets a sentence for each source that is left."""

    def __init__(self, root: str, wanted: Wanted, deadline: float, say: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._wanted, self._deadline = root, wanted, deadline
        self._say, self._clock = say, clock
        self._peers = [Peer(source, wanted.artifact, wanted.secret) for source in wanted.sources]
        self._others: List[Peer] = []
        """The peers that busy ones have named."""
        self._origins, self._left = origins_of(wanted.origins)
        for source in self._all():
            source.limits = self
        self._patience = clock() + (deadline - clock()) / 2
        self._gone: List[Origin] = []
        self._broken: List[Origin] = []
        self._given: Dict[Origin, int] = {}
        self._reused = 0
        self.kept: List[Entry] = []
        """The folders that nobody removes before they are released."""
        self._whole: Optional[Canonical] = None
        self._window_s, self._window_bytes = 0.0, 0
        self._buffer = memoryview(bytearray(SLICE))  # one for all: fresh memory costs more than the copy

    def _all(self) -> List[Origin]:
        return [*self._peers, *self._others, *self._origins]

    def timeout(self) -> float:
        """Return the seconds for which a source may send nothing."""
        self._require_time()
        return max(0.1, min(IDLE_S, self._deadline - self._clock()))

    def got(self, size: int, seconds: float) -> None:
        """Leave a source that is slow, where there is another one."""
        self._require_time()
        self._window_s, self._window_bytes = self._window_s + seconds, self._window_bytes + size
        if self._window_s >= WINDOW_S:
            rate = self._window_bytes / self._window_s
            self._window_s, self._window_bytes = 0.0, 0
            if rate < LEAST_BYTES_S and len(self._all()) - len(self._gone) > 1:
                raise SourceBroke(f"it is slow: {rate / (1 << 20):.2f} MiB/s")

    def _require_time(self) -> None:
        if self._clock() >= self._deadline:
            raise OutOfTime(f"the weights were not there in time{self._whys()}")

    def run(self) -> Fetched:
        """Return what is on this node at the end; raises WeightsError, OutOfTime at the deadline."""
        begun = self._clock()
        for name, why in self._left:
            self._say(f"weights: {name} is left out: {why}")
        try:
            index = self._index()
            wanted = self._wanted
            view = view_id(wanted.view, wanted.rank, wanted.size, wanted.artifact)
            entry = self._entry(view)
            held = self._fill_entry(entry, index)
            if view is None:
                self._whole = self._whole or Canonical(entry, index)
            elif self._whole is None and self._entry(None).index() is not None:
                self._whole = Canonical(self._entry(None), index)
        except BaseException as error:
            for one in self.kept:
                one.release()
            if isinstance(error, OSError):
                raise WeightsError(f"this node's disk: {error}") from None
            raise
        finally:
            for source in self._all():
                source.close()
        most = max(self._given, key=lambda one: self._given[one], default=None)
        size = sum(self._given.values())
        return Fetched(entry, index, held, self._whole, most.kind if most else "disk",
                       most.name if most else self._root, size, self._clock() - begun, self._reused, self._left,
                       [one.address for one in self._given if isinstance(one, Peer)])

    def _entry(self, name: Optional[str]) -> Entry:
        return Entry(self._root, self._wanted.artifact, name)

    def _index(self) -> Index:
        """Return the artifact's index: that on this node, else from the first source whose index has its hash."""
        kept = os.path.join(self._root, self._wanted.artifact, NAME)
        try:
            with open(kept, "rb") as file:
                return read_index(file.read(), self._wanted.artifact)
        except (OSError, WeightsError):
            pass
        for source in self._in_turn(self._all()):
            try:
                data = source.index()
                index = read_index(data, self._wanted.artifact)
            except SourceBusy:
                continue
            except OutOfTime:
                raise
            except (SourceFailed, WeightsError) as error:
                self._leave(source, error)
                continue
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            with open(f"{kept}.{os.getpid()}", "wb") as file:
                file.write(data)
            os.replace(f"{kept}.{os.getpid()}", kept)
            return index
        raise WeightsError(f"no source has its index{self._whys()}")

    def _fill_entry(self, entry: Entry, index: Index) -> Index:
        """Return the index of what is in `entry` once it is complete."""
        view = self._wanted.view if entry.view else None
        goal = index if view is None else files_view(index, view["files"]) if "files" in view else None
        entry.keep()
        self.kept.append(entry)
        with entry.writing(self._deadline, self._clock):
            held = entry.index()
            if held is not None and goal in (None, held):
                self._reused += held.size
                return held
            if goal is not None:
                whole = self._entry(None) if view is not None else None
                if whole is not None and whole.index() is not None:
                    return self._link(whole, entry, goal)
                self._fill(entry, goal)
                self._whole = None if entry.view else Canonical(entry, index).trust()
                return goal
            assert view is not None
            if self._entry(None).index() is None:
                held = self._view_of_a_peer(entry, view)
                if held is not None:
                    return held
            self._fill_entry(self._entry(None), index)
            self._whole = self._whole or Canonical(self._entry(None), index)
            layout = layout_of(self._entry(None), index, view, self._wanted.rank, self._wanted.size)
            made = make_view(self._entry(None), self._whole, index, layout, entry)
            entry.record(made)
            return made

    def _link(self, whole: Entry, entry: Entry, goal: Index) -> Index:
        for file in goal.files:
            link_or_copy(whole.path(file.path), entry.part_path(file.path))
        entry.complete(goal)
        self._reused += goal.size
        return goal

    def _offered(self, view: Optional[str]) -> List[Origin]:
        """Return the planned peers that have a view, or all files."""
        return [peer for peer in self._peers if peer.whole or peer.view == view]

    def _view_of_a_peer(self, entry: Entry, view: Mapping[str, Any]) -> Optional[Index]:
        """Fetch the view from a peer that has it, or makes it; None = no peer gave it."""
        asked = {"view": view, "rank": self._wanted.rank, "size": self._wanted.size}
        assert entry.view is not None
        refused: List[Origin] = []
        begun: Optional[Index] = None
        for peer in self._in_turn(self._offered(entry.view), refused):
            assert isinstance(peer, Peer)
            try:
                goal = peer.view_index(entry.view, asked)
                if goal != begun:
                    begun, ready = goal, self._begin(entry, goal)
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
        """Read the files of `goal` that are not here yet from the first sources that give them.

        Where all are left, those that only broke off go on, as long as that brings anything.
        """
        ready = self._begin(entry, goal)
        while True:
            before = sum(ready.values())
            for source in self._in_turn([*self._offered(entry.view), *self._origins]):
                if isinstance(source, Peer):
                    source.read_from(entry.view if source.view == entry.view else None, entry.view)
                try:
                    return self._read(entry, source, goal, ready)
                except SourceBusy:
                    pass
                except SourceFailed as error:
                    self._leave(source, error)
                source.close()
            if sum(ready.values()) == before or not self._broken:
                raise WeightsError(f"no source gave them{self._whys()}")
            self._gone = [source for source in self._gone if source not in self._broken]
            self._broken.clear()

    def _begin(self, entry: Entry, goal: Index) -> Dict[str, int]:
        """Return how many pieces of each file are here; raises WeightsError where the disk has no room for the rest."""
        ready = {file.path: entry.verified_part(file) for file in goal.files}
        here = sum(min(ready[file.path] * PIECE, file.size) for file in goal.files)
        self._reused += here
        entry.require_room(goal.size - here)
        return ready

    def _read(self, entry: Entry, source: Origin, goal: Index, ready: Dict[str, int]) -> None:
        """Read all that is missing from one source, and complete the entry."""
        for file in goal.files:
            self._read_file(entry, source, file, ready)
        entry.complete(goal)

    def _read_file(self, entry: Entry, source: Origin, file: File, ready: Dict[str, int]) -> None:
        """Read what is missing of a file, a piece at a time, and write it once it is verified."""
        if ready[file.path] == len(file.chunks):
            return
        start = ready[file.path] * PIECE
        with source.open(file.path, start) as stream, open(entry.part_path(file.path), "r+b") as out:
            for number in range(ready[file.path], len(file.chunks)):
                out.seek(number * PIECE)
                self._read_piece(stream, out, file, number, source)
                ready[file.path] = number + 1

    def _read_piece(self, stream: Stream, out: Any, file: File, number: int, source: Origin) -> None:
        """Read one piece into the part file; what has another hash does not count, and is written over."""
        buffer, hashed = self._buffer, hashlib.sha256()
        at, end = number * PIECE, min((number + 1) * PIECE, file.size)
        while at < end:
            size = stream.readinto(buffer[:end - at])
            if not size:
                raise SourceBroke(f"{file.path}: it ends after {at} of {file.size} bytes")
            hashed.update(buffer[:size])
            out.write(buffer[:size])
            at += size
            self._given[source] = self._given.get(source, 0) + size
        if hashed.hexdigest() != file.chunks[number]:
            raise SourceFailed(f"{file.path}: its piece {number} is not what the index says")

    def _in_turn(self, sources: Sequence[Origin], refused: Sequence[Origin] = ()) -> Iterator[Origin]:
        """Yield the sources that are left, in order; peers that are busy again and again, before any origin.

        An origin costs more than waiting: for half of the time there is, a busy peer is asked again.
        """
        peers, others = [one for one in sources if one.kind == "peer"], list[Origin]()
        for waits in itertools.count(1):
            self._require_time()
            yield from self._peers_in_turn(peers, others, refused)
            busy = any(self._usable(one, refused) for one in (*peers, *others))
            if not busy or self._clock() >= self._patience:
                yield from self._usable_of((one for one in sources if one.kind != "peer"), refused)
            if not busy or (self._clock() >= self._patience and any(one not in self._gone for one in self._origins)):
                return
            time.sleep(BUSY_S * min(waits, MOST_WAITS))

    def _peers_in_turn(
        self, peers: Sequence[Origin], others: List[Origin], refused: Sequence[Origin]
    ) -> Iterator[Origin]:
        """Yield the peers, and after a busy one those that it names: who got it from those is found so, too.

        `others` = those of the turn before, and afterwards of this one.
        """
        turn, named = [*peers, *others], list[Origin]()
        while turn:
            for peer in self._usable_of([turn.pop(0)], refused):
                yield peer
                new = [one for one in self._named_by(peer) if one not in (*peers, *named)][:MOST_OTHERS - len(named)]
                named += new
                turn = [*new, *(one for one in turn if one not in new)]
        others[:] = named or others

    def _named_by(self, peer: Origin) -> List[Origin]:
        """Return the others that a busy peer has named."""
        if not isinstance(peer, Peer) or sum(one in self._gone for one in self._others) >= MOST_OTHERS:
            return []
        named, peer.others = peer.others, []
        met = {one.address: one for one in (*self._others, *self._peers)}
        for one in named:
            if one["address"] not in met:
                met[one["address"]] = other = Peer(one, self._wanted.artifact, self._wanted.secret)
                other.limits = self
                self._others.append(other)
        return [met[one["address"]] for one in named]

    def _usable_of(self, sources: Iterable[Origin], refused: Sequence[Origin]) -> Iterator[Origin]:
        for source in sources:
            if self._usable(source, refused):
                self._window_s, self._window_bytes = 0.0, 0
                yield source

    def _usable(self, source: Origin, refused: Sequence[Origin]) -> bool:
        return source not in self._gone and source not in refused

    def _leave(self, source: Origin, why: Exception) -> None:
        self._gone.append(source)
        if isinstance(why, SourceBroke):
            self._broken.append(source)
        self._left.append((source.name, str(why)))
        self._say(f"weights: {source.name} is left: {why}")

    def _whys(self) -> str:
        return "".join(f"; {name}: {why}" for name, why in self._left)


def on_disk(root: str, artifact: str, view: Optional[str]) -> Fetched:
    """Return what is complete on this node already, and keep it from being removed; raises WeightsError."""
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
