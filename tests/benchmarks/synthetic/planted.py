"""Fleets cut out of a perfect packing: full nodes are cut into pieces, which are distributed to models.

Every replica can be placed, and if all cards are cut none is left over: the hardest case for a packer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random

from tests.benchmarks.synthetic.fleet import CARD, GIB, MIB, Held, Host, Member, Model, SyntheticFleet

ACCELERATORS = (("H100", 80), ("H200", 141), ("L40S", 48))
CARDS = 8
SMALLEST = CARD // 4
ACCELERATOR_LABEL = "ray.io/accelerator-type"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one host: `size` in 1/10000 of a card, from `offset` on."""

    host: int
    offset: int
    size: int


def hosts_of(nodes: int, accelerators: Sequence[tuple[str, int]], rng: Random) -> list[Host]:
    """Return hosts of eight cards, of random kinds of card, in fabrics of 32."""
    hosts = []
    for number in range(nodes):
        name, size = accelerators[rng.randrange(len(accelerators))]
        labels = {"fleet.io/pool": name.lower(), "fleet.io/fabric": f"fabric-{number // 32}"}
        hosts.append(Host(f"node-{number:05}", labels, (size * GIB,) * CARDS, name))
    return hosts


def halved(hosts: Sequence[int], count: int, rng: Random, smallest: int = SMALLEST) -> list[Piece]:
    """Cut hosts into `count` pieces by halving random ones; fewer pieces than hosts leave hosts unused."""
    whole = CARDS * CARD
    pieces = [Piece(host, 0, whole) for host in hosts[:count]]
    open_ones = list(pieces)
    done: list[Piece] = []
    while len(open_ones) + len(done) < count and open_ones:
        place = rng.randrange(len(open_ones))
        piece = open_ones[place]
        half = piece.size // 2
        low, high = Piece(piece.host, piece.offset, half), Piece(piece.host, piece.offset + half, half)
        if half // 2 >= smallest:
            open_ones[place] = low
            open_ones.append(high)
        else:
            open_ones[place] = open_ones[-1]
            open_ones.pop()
            done += [low, high]
    return open_ones + done


def share_out(
    pieces: Sequence[Piece], models: int, bucket: Callable[[Piece], Hashable], rng: Random
) -> list[list[Piece]]:
    """Distribute pieces to models; a model's pieces are of one bucket. With too few pieces there are fewer models."""
    buckets: dict[Hashable, list[Piece]] = {}
    for piece in pieces:
        buckets.setdefault(bucket(piece), []).append(piece)
    if len(buckets) > models:
        raise SystemExit(f"{models} models are too few for {len(buckets)} kinds of piece")
    shares = dict.fromkeys(buckets, 1)
    for _ in range(models - len(buckets)):
        widest = max(buckets, key=lambda name: len(buckets[name]) / shares[name] if len(buckets[name]) > shares[name]
                     else 0)
        shares[widest] += len(buckets[widest]) > shares[widest]
    parts: list[list[Piece]] = []
    for name, found in buckets.items():
        rng.shuffle(found)
        cuts = sorted(rng.sample(range(1, len(found)), shares[name] - 1))
        parts += [found[low:high] for low, high in zip([0, *cuts], [*cuts, len(found)], strict=True)]
    return parts


def member_of(piece: Piece, host: Host, rng: Random, role: str = "Standalone", count: int = 1) -> Member:
    """Return a claim that fits its piece: card memory, CPUs and memory are at most in proportion."""
    card = host.cards[0]
    per_card = min(piece.size, CARD) * card // CARD
    cards = piece.size / CARD
    return Member(
        piece.size, int(per_card * rng.uniform(0.5, 0.97)) // MIB * MIB,
        int(host.cpus / CARDS * cards * rng.uniform(0.2, 1.0) * 2) * CARD // 2,
        int(host.memory / CARDS * cards * rng.uniform(0.1, 1.0)) // GIB * GIB, role, count,
    )


def planted(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Whole hosts, halves, single cards and shares, on three kinds of card; everything fits exactly."""
    return planted_parts(nodes, replicas, models, rng)[0]


def planted_parts(nodes: int, replicas: int, models: int, rng: Random) -> tuple[SyntheticFleet, list[list[Piece]]]:
    """Return a planted fleet, and the pieces of each of its models."""
    hosts = hosts_of(nodes, ACCELERATORS if models >= 60 else ACCELERATORS[:1], rng)
    by_kind: dict[str, list[int]] = {}
    for number, host in enumerate(hosts):
        by_kind.setdefault(host.accelerator, []).append(number)
    pieces: list[Piece] = []
    left = replicas
    for place, kind in enumerate(sorted(by_kind)):
        own = by_kind[kind]
        part = left if place == len(by_kind) - 1 else replicas * len(own) // nodes
        pieces += halved(own, part, rng)
        left -= part
    parts = share_out(pieces, models, lambda piece: (hosts[piece.host].accelerator, piece.size), rng)
    rng.shuffle(parts)
    found = [model_of(number, part, hosts, rng) for number, part in enumerate(parts)]
    return SyntheticFleet("planted", hosts, found), parts


def settled(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Everything runs as planted, except that half of one model's replicas are missing."""
    fleet, parts = planted_parts(nodes, replicas, models, rng)
    changed = min(range(len(parts)), key=lambda number: (abs(len(parts[number]) - 50), number))
    slots: dict[tuple[int, int], int] = {}
    for number, (model, part) in enumerate(zip(fleet.models, parts, strict=True)):
        model.live = len(part) // 2 if number == changed else len(part)
        for replica_id, piece in enumerate(part[: model.live]):
            slot = slots[piece.host, number] = slots.get((piece.host, number), -1) + 1
            first = piece.offset // CARD
            cards = tuple(range(first, first + max(1, piece.size // CARD)))
            fleet.held.append(Held(model.key, replica_id, piece.host, model.members[0], cards, slot))
    rng.shuffle(fleet.held)
    return SyntheticFleet("settled", fleet.hosts, fleet.models, fleet.held)


def pools(count: int, rng: Random, *, nodes: int = 8, replicas: int = 10) -> SyntheticFleet:
    """`count` node pools, each with one model of `replicas` replicas; there is room for all of them."""
    fitting = [size for size in (1, 2, 4) if CARDS // size * nodes >= replicas]
    hosts, models = [], []
    for pool in range(count):
        for number in range(nodes):
            labels = {"fleet.io/pool": f"pool-{pool}"}
            hosts.append(Host(f"pool-{pool:03}-node-{number}", labels, (80 * GIB,) * CARDS, "H100"))
        size = rng.choice(fitting) * CARD
        models.append(Model(f"org/model-{pool}", replicas, (Member(size, 40 * GIB, 8 * CARD, 64 * GIB),),
                            {"fleet.io/pool": f"pool-{pool}"}))
    return SyntheticFleet("pools", hosts, models)


def model_of(number: int, part: Sequence[Piece], hosts: Sequence[Host], rng: Random) -> Model:
    """Return the model for the pieces of one part; most models select their kind of card."""
    host = hosts[part[0].host]
    selector = {ACCELERATOR_LABEL: host.accelerator} if rng.random() < 0.8 else {}
    return Model(f"org-{number % 40}/model-{number}", len(part), (member_of(part[0], host, rng),), selector)
