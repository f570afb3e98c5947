"""Labels of Kubernetes nodes as selectors of Ray nodes. A label is kept as it is, and Ray's nodes must be given it."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.selector import ACCELERATOR_LABEL, Selector
from fleetctl.importers.accelerators import accelerator_of_label
from fleetctl.importers.reading import Reading

_SELECTOR: TypeAdapter[dict[str, str]] = TypeAdapter(Selector)


def selector(owner: Reading, key: str) -> dict[str, str]:
    """Return the labels under a key as a nodeSelector; what Ray cannot say is reported."""
    found: dict[str, str] = {}
    for name, value in owner.child(key).pairs().items():
        accelerator = accelerator_of_label(name, value)
        at = owner.child(key)
        if accelerator is not None:
            at.note(name, f"kept only as {ACCELERATOR_LABEL}: {accelerator}, the label Ray gives its nodes", "lost")
            found[ACCELERATOR_LABEL] = accelerator
        elif is_selector(name, value):
            at.note(name, f"the Ray nodes must carry the label {name}={value}", "todo")
            found[name] = value
        else:
            at.lose(name, "not a label that Ray can select by")
    return found


def is_selector(name: str, value: str) -> bool:
    """Return whether a label can be in a nodeSelector as it is."""
    try:
        _SELECTOR.validate_python({name: value})
    except ValidationError:
        return False
    return not value.startswith(("!", "in("))
