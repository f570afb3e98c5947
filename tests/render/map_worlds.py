"""Placement maps for the render tests: one with every kind of card and node, and large ones."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.answers import Beside, LegendEntry, MapCard, MapNode, Piece, PlacementMap
from fleetctl.documents.plan import PlanInventory

EVIL = "[red]x[/red]\x1b[2J\u202e</title><script>alert(1)</script>&\"':3"


def piece(model: str | None, share: int = 10_000, holder: str = "live", **more: Any) -> Piece:
    return Piece.model_validate({"holder": holder, "share": share, "model": model,
                                 "replica": None if model is None else f"{model}/0", **more})


def card(index: int, *pieces: Piece, **more: Any) -> MapCard:
    free = 10_000 - sum(one.share for one in pieces)
    return MapCard(index=index, free_share=free, pieces=list(pieces), **more)


def node(name: str, *cards: MapCard, **more: Any) -> MapNode:
    return MapNode(**{"id": f"id-{name}", "name": name, "hardware": f"{len(cards)}xH100", "state": "ALIVE",
                      "cards": list(cards), **more})


def map_of(*nodes: MapNode, models: dict[str, int] | None = None, fleet: str | None = "lab") -> PlacementMap:
    keys = models or dict.fromkeys(piece.model or "" for node in nodes for card in node.cards
                                    for piece in card.pieces if piece.model)
    return PlacementMap(fleet=fleet, nodes=list(nodes), legend=[LegendEntry(model=model, live=1) for model in keys],
                        inventory=PlanInventory(observed_at="2026-03-04T12:00:00Z", source="a test"))


def everything() -> PlacementMap:
    return map_of(
        node("full", card(0, piece("org/a")), card(1, piece("org/a"))),
        node("shared", card(0, piece("org/a", 5_000), piece("org/b", 2_500)), card(1, piece("org/b", 1_000)), card(2)),
        node("many", card(0, *(piece(f"org/{letter}", 2_000) for letter in "abc"))),
        node("coming", card(0, piece("org/c", holder="new", certain=False)), card(1)),
        node("strange", card(0, piece("x", 5_000, "foreign"), piece(None, 5_000, "unknown")), card(1, dirty=True)),
        node("drain", card(0, piece("org/a")), state="DRAINING"), node("dead", card(0), card(1), state="DEAD"),
        node("closed", card(0), cordoned_by="spec.nodes[0].cordon"),
        node("cpu", hardware="64 CPUs", beside=[Beside(holder="new", model="org/b", replica="org/b/7")]),
    )
