"""Fleets that are hard to pack but fit completely: fragments, nested selectors, large gangs, mixed VRAM."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.benchmarks.synthetic.fleet import CARD, GIB, MIB, Held, Host, Member, Model, SyntheticFleet
from tests.benchmarks.synthetic.planted import (
    ACCELERATORS,
    CARDS,
    Piece,
    halved,
    hosts_of,
    member_of,
    share_out,
)

FABRIC = 32
WHOLE_HOST = CARDS * CARD
MIXED = (("A10G", 24), ("A100-40G", 40), ("L40S", 48), ("H100", 80), ("H100-NVL", 96), ("H200", 141), ("MI300X", 192))


def fragmented(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Foreign replicas hold odd shares of most cards; the demand takes all remaining shares."""
    hosts = hosts_of(nodes, ACCELERATORS[:1], rng)
    held: list[Held] = []
    free: list[Piece] = []
    for host in range(nodes):
        whole: list[int] = []
        for card in range(CARDS):
            taken = rng.choice((0, 0, 0, 1, 3, 4, 5, 6, 7, 9, 10, 10, 10, 10)) * CARD // 10
            if taken:
                held.append(_foreign(Piece(host, card * CARD, taken), hosts[host], len(held), rng))
            if not taken:
                whole.append(card)
            else:
                free += _odd_parts(host, card, CARD - taken, rng)
        free += _runs(host, whole, rng)
    rng.shuffle(free)
    held += [_foreign(piece, hosts[piece.host], len(held) + number, rng)
             for number, piece in enumerate(free[replicas:])]
    parts = share_out(free[:replicas], models, lambda piece: piece.size, rng)
    found = [_model(number, part, member_of(part[0], hosts[part[0].host], rng)) for number, part in enumerate(parts)]
    return SyntheticFleet("fragmented", hosts, found, held)


def _odd_parts(host: int, card: int, left: int, rng: Random) -> list[Piece]:
    parts: list[Piece] = []
    while left:
        size = left if left <= CARD // 10 else min(left, rng.randrange(2, 11) * CARD // 20)
        parts.append(Piece(host, (card + 1) * CARD - left, size))
        left -= size
    return parts


def _runs(host: int, cards: list[int], rng: Random) -> list[Piece]:
    """Cut completely free cards into claims of one, two or three cards, or into odd shares."""
    pieces: list[Piece] = []
    while cards:
        in_a_row = next((place for place, card in enumerate(cards) if card != cards[0] + place), len(cards))
        count = min(in_a_row, rng.choice((0, 1, 1, 2, 3)))
        if count:
            pieces.append(Piece(host, cards[0] * CARD, count * CARD))
            del cards[:count]
        else:
            pieces += _odd_parts(host, cards.pop(0), CARD, rng)
    return pieces


def _foreign(piece: Piece, host: Host, number: int, rng: Random) -> Held:
    first = piece.offset // CARD
    cards = tuple(range(first, first + max(1, piece.size // CARD)))
    return Held(f"elsewhere/model-{number % 50}", number, piece.host, member_of(piece, host, rng), cards, 0, fleet=None)


def selectors(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Models without a selector compete with models bound to a zone, a rack, or all but one rack of a zone."""
    hosts = hosts_of(nodes, ACCELERATORS[:1], rng)
    racks = max(1, models // 40)
    zones = 4 if racks >= 8 else 1
    for number, host in enumerate(hosts):
        rack = number % racks
        host.labels.update({"topology.io/zone": f"zone-{rack % zones}", "topology.io/rack": f"rack-{rack}"})
    pieces = halved(range(nodes), replicas, rng)
    scopes = {piece: _scope(hosts[piece.host], rng) for piece in pieces}
    parts = share_out(pieces, models, lambda piece: (piece.size, scopes[piece]), rng)
    rng.shuffle(parts)
    return SyntheticFleet("selectors", hosts, [
        _model(number, part, member_of(part[0], hosts[part[0].host], rng), dict(scopes[part[0]]))
        for number, part in enumerate(parts)
    ])


def _scope(host: Host, rng: Random) -> tuple[tuple[str, str], ...]:
    zone, rack = host.labels["topology.io/zone"], host.labels["topology.io/rack"]
    choice = rng.randrange(4)
    if choice == 0:
        return ()
    if choice == 1:
        return (("topology.io/zone", zone),)
    if choice == 2:
        return (("topology.io/rack", rack),)
    excluded = "rack-0" if rack != "rack-0" else "rack-1"
    return (("topology.io/rack", f"!{excluded}"), ("topology.io/zone", f"in({zone}, zone-none)"))


def gangs(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Fabrics filled with gangs of 2 to 16 whole hosts, each inside one fabric; single replicas take the rest."""
    hosts = hosts_of(nodes, ACCELERATORS[:1], rng)
    pieces: list[Piece] = []
    rest: list[int] = []
    for first in range(0, nodes, FABRIC):
        here = list(range(first, min(nodes, first + FABRIC)))
        while len(here) > 6:
            span = rng.choice([size for size in (2, 4, 8, 16) if size <= len(here)])
            pieces.append(Piece(here[0], 0, span * WHOLE_HOST))
            del here[:span]
        rest += here
    pieces = pieces[:replicas]
    pieces += halved(rest, replicas - len(pieces), rng)
    parts = share_out(pieces, models, lambda piece: piece.size, rng)
    rng.shuffle(parts)
    return SyntheticFleet("gangs", hosts, [_gang(number, part, hosts, rng) for number, part in enumerate(parts)])


def _gang(number: int, part: Sequence[Piece], hosts: Sequence[Host], rng: Random) -> Model:
    piece = part[0]
    span = piece.size // WHOLE_HOST
    if span < 2:
        return _model(number, part, member_of(piece, hosts[piece.host], rng))
    each = member_of(Piece(piece.host, 0, WHOLE_HOST), hosts[piece.host], rng)
    leader, worker = (Member(each.gpus, each.vram, each.cpus, each.memory, role, count)
                      for role, count in (("Leader", 1), ("Worker", span - 1)))
    return Model(f"org-{number % 40}/model-{number}", len(part), (leader, worker), {}, "fleet.io/fabric")


def vram(nodes: int, replicas: int, models: int, rng: Random) -> SyntheticFleet:
    """Seven sizes of card and no selector: a model's memory decides which cards it fits, and larger ones fit too."""
    kinds = MIXED if models >= 60 else MIXED[2:4]
    hosts = hosts_of(nodes, kinds, rng)
    pieces = halved(range(nodes), replicas, rng)
    parts = share_out(pieces, models, lambda piece: (hosts[piece.host].accelerator, piece.size), rng)
    rng.shuffle(parts)
    smaller = {size * GIB: max([other * GIB for _, other in kinds if other < size], default=0) for _, size in kinds}
    return SyntheticFleet("vram", hosts, [
        _model(number, part, _by_memory(part[0], hosts[part[0].host], smaller, rng))
        for number, part in enumerate(parts)
    ])


def _by_memory(piece: Piece, host: Host, smaller: dict[int, int], rng: Random) -> Member:
    """Return a claim that fits only this size of card or a larger one; a share may be claimed by memory alone."""
    card, plain = host.cards[0], member_of(piece, host, rng)
    if piece.size >= CARD:
        low = smaller[card]
        memory = (low + int((card - low) * rng.uniform(0.1, 0.97))) // MIB * MIB
        return Member(plain.gpus, memory, plain.cpus, plain.memory)
    if rng.random() < 0.5:
        return Member(0, card * piece.size // CARD, plain.cpus, plain.memory)
    return plain


def _model(number: int, part: Sequence[Piece], member: Member, selector: dict[str, str] | None = None) -> Model:
    return Model(f"org-{number % 40}/model-{number}", len(part), (member,), selector or {})
