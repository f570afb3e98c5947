"""A member's caches, as its seat uses them: a folder for each variable, filled before the engine starts, offered after.

Nothing here ever fails a start: without a cache an engine compiles, as it would anyway. What is missing, and why, is
in the engine's log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import ray

from ..cards import CardCheck, card_uuids
from ..in_thread import Late, in_thread
from ..messages import GotCaches, Member, WeightSource
from ..model_files import session_secret
from ..node import engine_environment, expand, node_environment
from ..ports import host_port
from ..report import StartFailed, first_line, utc_now
from ..weights.fetch import Fetch, Wanted, on_disk
from ..weights.index import Index, WeightsError
from ..weights.serve import Source, WeightsServer, serve_weights
from ..weights.store import Entry, cache_root
from .folder import OwnFolder, Snapshot, take_folder
from .hardware import Hardware, hardware_of
from .key import FORM, CacheKey, hashed, line_of, of_node
from .offers import ARTIFACT, Offer, offers_for
from .snapshot import MOST_BYTES, CacheError, Growing, States, fill, require_bounded, scan, take, written_now
from .software import Software, software_of

FETCH_S, SHARE_OF_START = 300.0, 3
"""A fetch may take this long, and no more than a third of what is left of the start: compiling takes time, too."""
LATE_S = 2.0
QUIET_S, POLL_S, IDLE_POLL_S, MOST_PAUSE_S = 10.0, 2.0, 30.0, 3600.0
"""A folder is quiet if nothing changes for this long. After each snapshot the next one waits twice as long."""
SHARE_OF_CORE, MOST_POLL_S = 50, 60.0
"""To look at a folder with many files takes no more than a 50th of a core: the actor answers probes meanwhile."""


class _Limited(Fetch):
    """A fetch of at most so many bytes and files, whatever a source sends."""

    left = MOST_BYTES

    def _index(self) -> Index:
        index = super()._index()
        require_bounded(index)
        return index

    def received(self, size: int, seconds: float) -> None:
        """Count received bytes."""
        self.left -= size
        if self.left < 0:
            raise WeightsError(f"it has more than {MOST_BYTES >> 30} GiB")
        super().received(size, seconds)


class MemberCaches:
    """The caches of one member on its node. The constructor returns once they are there, or it is clear that none are.

    `injected` = the variables that fleetctl sets. `deadline` is monotonic: the replica's start. `say` writes to the
    engine's log.
    """

    def __init__(self, member: Member, injected: Mapping[str, str], fleet: str, cards: CardCheck, deadline: float,
                 say: Callable[[str], None]) -> None:
        self._member = member

        def say_of(text: str) -> None:
            say(f"caches: {text}")

        self._say: Callable[[str], None] = say_of
        self._replica = f"{injected['FLEETCTL_MODEL']}/{injected['FLEETCTL_REPLICA_ID']}"
        self._ports = member.cache_ports
        self._folder: Optional[OwnFolder] = None
        self._entry: Optional[Entry] = None
        self._filled: States = {}
        self._served: Optional[Tuple[Source, WeightsServer, Offer]] = None
        self._former: Optional[str] = None
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self.variables: Dict[str, str] = {}
        """The folder of each variable, for the engine; empty if it must do without."""
        self.got: Optional[GotCaches] = None
        """What the member's place says of it."""
        begun = time.monotonic()
        limit = min(deadline, begun + FETCH_S, begun + max(0.0, deadline - begun) / SHARE_OF_START)

        def prepare() -> Tuple[Dict[str, str], GotCaches]:
            self._root, self._secret = cache_root(), session_secret()
            return self._take_folder(injected, fleet, cards), self._fill(limit, begun)

        try:  # in a thread: the disk may be that of a file server, which hangs
            self.variables, self.got = in_thread(prepare, limit - begun + LATE_S, "fleetctl-caches")
        except Exception as error:  # whatever is wrong with a disk or with Ray is no reason not to start
            why = "they were not there in time" if isinstance(error, Late) else (
                str(error) if isinstance(error, (CacheError, StartFailed)) else first_line(error))
            self._closed.set()
            self._say(f"the engine starts without them: {why}")
            self.got = GotCaches("", trouble=why)

    def _take_folder(self, injected: Mapping[str, str], fleet: str, cards: CardCheck) -> Dict[str, str]:
        """Take an empty folder for the member's key, and return the folder of each variable."""
        self._unshared, key = key_of(self._member, injected, fleet, cards, self._secret)
        self._folder = folder = take_folder(self._root, key.digest[:16])
        self._key = key._replace(folder=folder.in_key)
        folder.empty(list(key.caches))
        folder.write_key(self._key)
        return {name: f"{folder.files}/{name}" for name in key.caches}

    def _fill(self, deadline: float, begun: float) -> GotCaches:
        """Put a snapshot for the key into the folder, of this node or of a ready replica; the folder may stay empty."""
        if self._unshared:
            self._say(f"not exchanged with other members: {self._unshared}")
            return GotCaches(self._key.digest, trouble=self._unshared)
        trouble = self._from_disk(deadline)
        if self._entry:
            size = sum(state.size for state in self._filled.values())
            self._say(f"{size} bytes were on this node, in {self._folder.files if self._folder else ''}")
            return GotCaches(self._key.digest, "disk", "", size, round(time.monotonic() - begun, 2))
        offers = offers_for(self._key, self._replica)
        for tries_left in (1, 0) if offers else ():
            try:
                name, size = self._from_replica(offers, deadline)
            except CacheError as error:
                trouble = str(error)
                self._say(f"not fetched: {trouble}")
                if tries_left and time.monotonic() < deadline:
                    continue
                break
            seconds = round(time.monotonic() - begun, 2)
            self._say(f"{size} bytes from {name} in {seconds:.1f} s")
            return GotCaches(self._key.digest, "peer", name, size, seconds)
        if not offers:
            self._say("no ready replica has any for this engine here: it compiles")
        return GotCaches(self._key.digest, trouble=trouble or None)

    def _from_disk(self, deadline: float) -> str:
        """Fill the folder with the last snapshot that was made in it; returns why it cannot, if there is one."""
        assert self._folder is not None
        made = self._folder.snapshot(self._key, self._secret)
        if made is None or not ARTIFACT.match(made.artifact):
            return ""
        entry = Entry(self._root, made.artifact, None)
        entry.keep()
        try:
            self._filled = fill(self._folder.files, entry, self._key, deadline)
            self._entry = entry
        except CacheError as error:
            entry.release()
            with contextlib.suppress(OSError):
                entry.remove()
            self._say(f"those on this node are not used: {error}")
            return str(error)
        return ""

    def _from_replica(self, offers: Sequence[Tuple[str, Offer]], deadline: float) -> Tuple[str, int]:
        """Fetch a snapshot into the store and fill the folder with it; returns from where, and its size."""
        assert self._folder is not None
        artifact = offers[0][1].artifact
        sources = [WeightSource(replica, host_port(offer.ip, offer.port), None, True) for replica, offer in offers]
        say = self._say
        fetch = _Limited(self._root, Wanted(artifact, None, 0, 1, [], sources, self._secret), deadline,
                         lambda text: say(text[9:] if text.startswith("weights: ") else text))
        entry = Entry(self._root, artifact, None)
        try:
            got = in_thread(fetch.run, max(0.0, deadline - time.monotonic()) + 1.0, "fleetctl-caches")
            self._filled = fill(self._folder.files, got.entry, self._key, deadline)
            self._entry = got.entry
        except (Late, WeightsError) as error:
            raise CacheError(str(error) or "it was not complete in time: something hangs") from None
        except CacheError:
            for kept in fetch.kept:
                kept.release()
            with contextlib.suppress(OSError):
                entry.remove()
            raise
        self._folder.record(Snapshot(artifact, self._key.digest, got.held.size, len(got.held.files), utc_now()),
                            self._secret)
        return got.name, got.size + got.reused

    def serve(self, ip: str) -> None:
        """Serve what was fetched from now on, while the engine starts: a busy source names this node to others."""
        self._ip = ip
        if self._entry and self.variables:
            self._serve(self._entry)

    def _serve(self, entry: Entry) -> None:
        """Serve a snapshot in place of the former one."""
        try:
            fetched = on_disk(self._root, entry.artifact, None)
            source = Source(self._root, fetched, self._secret, replica=self._replica)
            fetched.entry.release()  # the source keeps it
        except (OSError, WeightsError) as error:
            self._say(f"not offered: {error}")
            return
        server, served = serve_weights(source, self._ip, self._ports, self._served[1] if self._served else None)
        if server is None:
            self._say(f"not offered: {served.unserved}")
            return
        offer = Offer(self._key.digest, entry.artifact, ray.get_runtime_context().get_node_id(), self._ip, server.port,
                      fetched.held.size, len(fetched.held.files), utc_now())
        with self._turn:
            before, self._served = self._served, (source, server, offer)
        if before and before[2].artifact != entry.artifact:
            before[0].release()
            self._drop_former(before[2].artifact)

    def _drop_former(self, artifact: str) -> None:
        """Remove the snapshot before the one that was just replaced: others may still read the replaced one."""
        former, self._former = self._former, artifact
        if former:
            with contextlib.suppress(OSError):
                Entry(self._root, former, None).remove()

    def watch(self, processes: Callable[[], List[int]]) -> None:
        """Offer the folder whenever it is quiet, from now on: the engine, or its gang, is ready."""
        if self._folder is not None and self.variables and not self._unshared:
            threading.Thread(target=self._watch, args=(processes,), name="fleetctl-caches", daemon=True).start()

    def _watch(self, processes: Callable[[], List[int]]) -> None:
        offered, before, said = self._filled, dict(self._filled), ""
        since, pause_s, not_before, took_s = time.monotonic(), QUIET_S, 0.0, 0.0
        while not self._closed.wait(max(min(MOST_POLL_S, took_s * SHARE_OF_CORE),
                                        IDLE_POLL_S if before == offered and offered else POLL_S)):
            begun = time.thread_time()
            try:
                try:
                    found = scan(self._folder.files) if self._folder else {}
                finally:
                    took_s = time.thread_time() - begun
                now = time.monotonic()
                if found != before:
                    before, since = found, now
                is_new = bool(found) and found != offered
                if not is_new or now - since < QUIET_S or now < not_before or self._is_written(processes):
                    continue
                self._take(found)
                offered, pause_s = found, min(MOST_PAUSE_S, pause_s * 2)
                not_before = time.monotonic() + pause_s
            except Growing:
                since = time.monotonic()
            except Exception as error:  # a full disk, a folder that was removed
                text = str(error) if isinstance(error, CacheError) else first_line(error)
                if text != said:
                    self._say(f"not offered: {text}")
                said, since = text, time.monotonic() + MOST_PAUSE_S / 60

    def _is_written(self, processes: Callable[[], List[int]]) -> bool:
        assert self._folder is not None
        return bool(written_now(self._folder.files, processes()))

    def _take(self, states: States) -> None:
        """Make a snapshot of the quiet folder and serve it."""
        assert self._folder is not None
        entry = take(self._root, self._folder.files, self._key, states, self._secret)
        index = entry.index()
        assert index is not None
        if self._closed.is_set():
            return entry.release()
        self._folder.record(Snapshot(entry.artifact, self._key.digest, index.size, len(index.files), utc_now()),
                            self._secret)
        former, self._entry = self._entry, entry
        self._serve(entry)
        if former is not None:
            former.release()
        self._say(f"{index.size} bytes in {len(index.files) - 1} files are offered to other members")
        return None

    def offers(self) -> List[Offer]:
        """Return what other members may fetch from here."""
        with self._turn:
            return [self._served[2]] if self._served and not self._closed.is_set() else []

    def close(self) -> None:
        """Offer nothing any more: the engine is ended, or runs with other weights."""
        self._closed.set()


def key_of(member: Member, injected: Mapping[str, str], fleet: str, cards: CardCheck, secret: bytes,
           ) -> Tuple[str, CacheKey]:
    """Return why a member's caches may not be exchanged, empty = they may, and its key, yet without a folder."""
    engine = member.engine
    env = engine_environment(engine, injected, member.cpus, partial=True)
    software = software_of(expand(list(engine.command), env), env, expand(list(engine.version), env), engine.workdir)
    uuids = card_uuids(cards)
    hardware = hardware_of(uuids if len(uuids) == -(-member.gpus // 10_000) else (), member.gpus > 0)
    key = _key(member, injected, env, (fleet, ray.get_runtime_context().namespace), software, hardware, secret)
    return software.unknown or hardware.unknown, key


def _key(member: Member, injected: Mapping[str, str], env: Mapping[str, str], of: Tuple[str, str],
         software: Software, hardware: Hardware, secret: bytes) -> CacheKey:
    engine, weights = member.engine, member.weights
    written = {name: line_of([value], env, engine.env)[0] if isinstance(value, str) else env.get(name, "")
               for name, value in engine.env.items()}
    around = of_node(node_environment(), [*engine.caches, *engine.env])
    return CacheKey(
        form=FORM, fleet=of[0], namespace=of[1], model=injected["FLEETCTL_MODEL"],
        seat=(member.group, member.role, str(member.rank), injected["FLEETCTL_GROUP_SIZE"]),
        caches=tuple(engine.caches), folder="",
        command=line_of([*engine.command, *engine.args], env, engine.env), workdir=engine.workdir or "",
        env=hashed({**around, **{f"env {name}": value for name, value in written.items()}}, secret),
        weights=f"{weights.artifact} {weights.view}" if weights else "", claim=(member.gpus, member.cpus),
        engine=software.engine, program=software.program, packages=dict(software.packages),
        cards=tuple(hardware.cards), driver=hardware.driver, cpu=hardware.cpu, flags=tuple(hardware.flags),
        libc=hardware.libc)
