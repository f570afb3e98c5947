"""`$(NAME)` means what it means in a Kubernetes container's command."""

from __future__ import annotations

import pytest

from fleetctl.agent.node import expand
from fleetctl.agent.report import StartFailed

VARIABLES = {"A": "a-value", "B": "b-value", "EMPTY": "", "FLEETCTL_PORT": "7001", "LOOP": "$(A)"}


@pytest.mark.parametrize(("text", "expanded"), [
    ("", ""),
    ("plain", "plain"),
    ("$(A)", "a-value"),
    ("x$(A)y$(B)z", "xa-valueyb-valuez"),
    ("$(EMPTY)", ""),
    ("$(A)$(A)", "a-valuea-value"),
    ("$(LOOP)", "$(A)"),
    ("$(UNKNOWN)", "$(UNKNOWN)"),
    ("$()", "$()"),
    ("$( A )", "$( A )"),
    ("$$(A)", "$(A)"),
    ("$$$(A)", "$a-value"),
    ("$$$$(A)", "$$(A)"),
    ("$$", "$"),
    ("$", "$"),
    ("cost: $5", "cost: $5"),
    ("$A ${A}", "$A ${A}"),
    ("$(A", "$(A"),
    ("$(A$(B)", "$(A$(B)"),
    ("$(A$(B))", "$(A$(B))"),
    ("$(A))", "a-value)"),
    ("$(a\nb)", "$(a\nb)"),
    ("--port=$(FLEETCTL_PORT)", "--port=7001"),
])
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


def test_an_unknown_fleetctl_name_is_an_error_and_not_text_for_the_engine() -> None:
    with pytest.raises(StartFailed, match="FLEETCTL_PROT"):
        expand("--port=$(FLEETCTL_PROT)", VARIABLES)


def test_an_escaped_fleetctl_name_is_text() -> None:
    assert expand("$$(FLEETCTL_PROT)", VARIABLES) == "$(FLEETCTL_PROT)"
