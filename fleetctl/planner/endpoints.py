"""The endpoints of all replicas that are ready and not draining. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
from fleetctl.documents.base import is_model_key, is_served_name
from fleetctl.documents.fleet import Serving
from fleetctl.documents.inventory import Inventory, Replica, address_of, dead_node_ids, is_live, is_port, serves
from fleetctl.documents.quantity import grouped
from fleetctl.fleetfile.resolved import ResolvedFleet


def endpoints_of(seen: Inventory, fleet: ResolvedFleet | None) -> Endpoints:
    """Return the endpoints of the fleet's models; without a fleet, those of all replicas that any fleet started."""
    dead, names = dead_node_ids(seen), {node.id: node.name for node in seen.nodes}
    wanted = [one for one in seen.replicas
              if (one.fleet if fleet is None else one.fleet == fleet.name) and is_model_key(one.model)]
    ready = grouped((one.model, one) for one in wanted if serves(one) and is_live(one, dead))
    known = {model.key: model.serving for model in fleet.models} if fleet else {}
    keys = [*known, *sorted(ready.keys() - known.keys())]
    return Endpoints(observed_at=seen.observed_at, source=seen.source, fleet=fleet.name if fleet else None,
                     models=[_served(key, known.get(key, Serving()), ready.get(key, []), names) for key in keys])


def _served(key: str, serving: Serving, ready: list[Replica], names: Mapping[str, str]) -> ServedModel:
    found = [endpoint for replica in sorted(ready, key=lambda one: one.replica_id or 0)
             for endpoint in _of_replica(replica, serving, names)]
    name = serving.name or (key if is_served_name(key) else "")
    return ServedModel(key=key, name=name, path=serving.path, weight=serving.weight, endpoints=found)


def _of_replica(replica: Replica, serving: Serving, names: Mapping[str, str]) -> Iterator[Endpoint]:
    for member in replica.members:
        serves = member.rank == 0 and (serving.groups is None or member.group in serving.groups)
        address, port = address_of(member.address), member.port
        if serves and address and is_port(port) and replica.replica_id is not None:
            yield Endpoint(
                replica_id=replica.replica_id, group=member.group or "", copy_index=member.copy_index,
                role=member.role, node=names.get(member.node_id or "", member.node_id or ""), address=address,
                port=port, path=serving.path)
