"""Device requests of a member: GPUs become typed claims, everything else is named and kept as a comment."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.authored import bytes_text
from fleetctl.importers.modelplane.device_selector import Wanted, read_selector
from fleetctl.importers.reading import Reading


def claim(member: Reading) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the resources and the nodeSelector that the device requests of a member ask for.

    Several requests for GPUs become one, as strict as the strictest.
    """
    gpus = [(request, wanted) for request in member.child("nodeSelector").items("devices")
            if (wanted := _gpu_request(request)) is not None]
    if not gpus:
        return {}, {}
    resources: dict[str, Any] = {"gpus": sum(_count(request) for request, _ in gpus)}
    memories = {wanted.memory for _, wanted in gpus}
    least = max((memory for memory in memories if memory is not None), default=None)
    if least is not None:
        resources["vram"] = bytes_text(least[0]) if least[1].isdigit() else least[1]
        member.child("nodeSelector").note(
            "devices", f"{resources['vram']} is what the card must have, and vram is what must be free on it: write "
                       "what the model needs", "todo")
    if len(gpus) > 1 and (len(memories) > 1 or len({wanted.types for _, wanted in gpus}) > 1):
        gpus[-1][0].note(None, "two kinds of GPUs in one member are written as one: all must be as the strictest",
                         "lost")
    selector: dict[str, str] = {}
    for request, wanted in gpus:
        selector |= _type_selector(request, wanted)
    return resources, selector


def _count(request: Reading) -> int:
    return request.count("count", "devices", least=1)


def _gpu_request(request: Reading) -> Wanted | None:
    """Read one request; returns what it wants of its GPUs, or None, reported, where it asks for something else."""
    name = request.text("name")
    wanted = Wanted()
    for selector in request.items("selectors"):
        cel = selector.text("cel")
        if cel is not None:
            read_selector(cel, wanted)
    if not wanted.is_gpu:
        request.lose(None, _no_gpu(request, name, wanted))
        return None
    for kept in wanted.kept:
        request.note("selectors", f"no counterpart: {kept}", "lost")
    return wanted


def _no_gpu(request: Reading, name: str | None, wanted: Wanted) -> str:
    expressions = [_one_line(str(one.peek("cel"))) for one in request.items("selectors")]
    words = f": {' && '.join(expressions)}" if expressions else ""
    what = f"{_count(request)} x {name or 'a device'}"
    if wanted.is_gpu is None:
        return f"{what}: no driver is named, so the device is unknown{words}"
    return f"{what}: only GPUs can be claimed{words}"


def _type_selector(request: Reading, wanted: Wanted) -> dict[str, str]:
    if wanted.types is None:
        return {}
    types = sorted(wanted.types)
    if not types:
        request.note("selectors", "two products at once are asked of one card, and none can be both", "todo")
        return {}
    written = types[0] if len(types) == 1 else f"in({', '.join(types)})"
    products = ", ".join(dict.fromkeys(wanted.products))
    request.note("selectors", f"{products}: kept only as {ACCELERATOR_LABEL}: {written}", "lost")
    return {ACCELERATOR_LABEL: written}


def _one_line(cel: str) -> str:
    return " ".join(cel.split())
