"""What ready replicas offer to other members of their fleet, told by their own actors through Ray.

The hash of a snapshot comes from there and from nowhere else: the port only sends bytes that are compared with it.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import re
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import ray

from .. import cluster
from ..messages import Json
from ..report import actor_name, read_mark
from ..wire import document_of, parse
from .key import CacheKey
from .snapshot import MOST_BYTES, MOST_FILES

ASK_S, MOST_ASKED = 5.0, 8
"""How long replicas have to tell what they offer, and how many are asked."""
MOST_OFFERS = 1024
ARTIFACT = re.compile(r"[0-9a-f]{64}\Z")


class Offer(NamedTuple):
    """A snapshot that a ready replica serves, as its own actor says. `key` = the digest."""

    key: str
    artifact: str
    node_id: str
    ip: str
    port: int
    bytes: int
    files: int
    at: str


def offers_for(key: CacheKey, but: str) -> List[Tuple[str, Offer]]:
    """Return who offers a cache with this key, all of them the same snapshot: ready replicas of the model and fleet.

    What they say comes through Ray, from their own actors. An address counts only if Ray's table confirms it.
    """
    named: List[Tuple[str, Any]] = []
    prefix = actor_name(key.model, 0)[:-1]
    for data in cluster.live_actors("ALIVE"):
        is_named = data.name.startswith(prefix) and data.ray_namespace == key.namespace
        mark = read_mark(data.repr_name) if is_named else None
        number = data.name[len(prefix):]
        if mark and mark.ready_at and mark.fleet == key.fleet and cluster.REPLICA_ID.fullmatch(number):
            named.append((f"{key.model}/{number}", data.name))
    own = but.rpartition("/")[2]
    named.sort(key=lambda row: (row[0] == but, abs(int(row[0].rpartition("/")[2]) - int(own))))
    asked: Dict[Any, str] = {}
    for replica, name in [row for row in named if row[0] != but][:MOST_ASKED]:
        with contextlib.suppress(Exception):  # it has just ended, or is of a release without caches
            asked[ray.get_actor(name).caches.remote()] = replica
    ray.wait(list(asked), num_returns=len(asked), timeout=ASK_S) if asked else None
    at = cluster.addresses() if asked else {}
    found: List[Tuple[str, Offer]] = []
    for answer, replica in asked.items():
        with contextlib.suppress(Exception):  # it does not answer, or something that is no offer
            found += [(replica, offer) for offer in read_offers(ray.get(answer, timeout=0))
                      if offer.key == key.digest and at.get(offer.node_id) == offer.ip]
    by_artifact: Dict[str, List[Tuple[str, Offer]]] = {}
    for replica, offer in found:
        by_artifact.setdefault(offer.artifact, []).append((replica, offer))
    return max(by_artifact.values(), key=lambda rows: (len(rows), max(row[1].at for row in rows), rows[0][1].artifact),
               default=[])


def read_offers(answer: Json) -> List[Offer]:
    """Return the offers in what an actor says, without those that cannot be fetched; raises ValueError."""
    offers = [parse(Offer, row) for row in answer[:MOST_OFFERS]]
    return [offer for offer in offers if ARTIFACT.match(offer.artifact) and 0 < offer.port < 65536
            and 0 <= offer.bytes <= MOST_BYTES and 0 <= offer.files <= MOST_FILES + 1]


def told(offers: Sequence[Offer]) -> Json:
    """Return offers as an actor tells them."""
    return document_of(list(offers))
