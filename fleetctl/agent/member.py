"""One member on its node: takes ports and cards, then runs its engine. A single replica is one; a gang has several."""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Tuple

import ray

from . import cards, node
from .engine import LAST_WORDS, EngineProcess, StartFailed, node_environment, reserve_port


class MemberSeat:
    """A member that has its node, ports and cards, and no engine yet."""

    def __init__(self, member: Mapping[str, Any]) -> None:
        self.member = member
        self.ip: str = ray.util.get_node_ip_address()
        self._port_holder = reserve_port()
        self._leader_holder = reserve_port() if int(member["rank"]) == 0 else None
        self.port: int = self._port_holder.getsockname()[1]
        self.leader_port: int = self._leader_holder.getsockname()[1] if self._leader_holder else 0
        self.visible = ",".join(node.granted_cards())
        found = cards.wait_for_clean_cards(self.visible, int(member["gpus"]), int(member["vram"]), node_environment())
        if found:
            raise StartFailed("CARD_IN_USE", f"{found} (node {member['node']})")

    def place(self) -> Dict[str, Any]:
        """Return where this member sits, for the replica's repr."""
        ids = [card for card in self.visible.split(",") if card]
        return {
            "group": self.member["group"], "copy": self.member["copy"], "role": self.member["role"],
            "rank": self.member["rank"], "nodeId": ray.get_runtime_context().get_node_id(), "ip": self.ip,
            "port": self.port, "gpuIndices": [int(card) for card in ids if card.isdigit()],
            "gpuUuids": list(cards.uuids(self.visible, node_environment())),
        }

    def start_engine(self, injected: Mapping[str, str]) -> EngineProcess:
        """Give the ports free and start the engine; must run in the actor's main thread."""
        log = node.log_path(self.member["log"])
        with open(log, "a", encoding="utf-8") as banner:
            banner.write(f"fleetctl: starting {self.member['group']}/{self.member['copy']} rank {self.member['rank']}"
                         f" at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n")
        variables = dict(injected)
        variables.update(node.other_vendor_variables())
        engine = EngineProcess(self.member, variables, self.visible, log, self.port, self.ip)
        self.release_ports()
        engine.start()
        return engine

    def release_ports(self) -> None:
        """Close the sockets that kept the ports."""
        self._port_holder.close()
        if self._leader_holder:
            self._leader_holder.close()


def write_reason(member: Mapping[str, Any], reason: str) -> None:
    """Keep the exit reason where the engine's output lies, its last words there already."""
    try:
        with open(node.log_path(member["log"]), "a", encoding="utf-8") as log:
            log.write(f"fleetctl: {reason.partition(LAST_WORDS)[0]}\n")
    except OSError:
        return


def deadline_after(lifecycle: Mapping[str, Any]) -> float:
    """Return the monotonic time by which an engine that starts now must be ready."""
    return time.monotonic() + float(lifecycle["startupTimeout"])


def addresses(seat: MemberSeat) -> Tuple[str, int]:
    """Return host and port at which a gang finds its leader."""
    return seat.ip, seat.leader_port
