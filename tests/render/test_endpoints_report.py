"""The table of endpoints: a URL can be copied in one piece, for any name and any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
from fleetctl.render.endpoint_formats import endpoints_report
from fleetctl.render.report.terminal import print_report

LONG = "meta-llama/Llama-3.1-405B-Instruct-FP8-a-name-that-fills-a-line-by-itself-and-more"


def printed(width: int, variant: str | None = None) -> list[str]:
    one = Endpoint(replica_id=3, group="decode", role="Leader", node="node-a", address="fd00::7", port=42213,
                   path="/v1", variant=variant)
    models = [ServedModel(key=LONG, name="llama", path="/v1", weight=1, endpoints=[one]),
              ServedModel(key="org/b", name="org/b", path="/v1", weight=1, endpoints=[])]
    served = Endpoints(observed_at="2026-03-04T12:00:00Z", source="x", models=models)
    out = io.StringIO()
    print_report(endpoints_report(served), Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("variant", [None, "h100-fp8", "a" * 63])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_a_url_is_never_broken(width: int, variant: str | None) -> None:
    lines = printed(width, variant)
    assert (variant or "") in "".join(line.strip() for line in lines)
    assert variant or "VARIANT" not in lines[0]
    assert all(len(line) <= width for line in lines)
    assert "http://[fd00::7]:42213/v1" in " ".join(lines).split()
    assert ["none is ready" in " ".join(line.split()) for line in lines if line.startswith("org/b ")] == [True]


def test_in_a_narrow_window_name_group_and_node_go_below() -> None:
    assert "  llama, decode, node-a" in printed(80)
    assert printed(160)[0].split() == ["REPLICA", "URL", "NAME", "GROUP", "NODE"]
