"""What a CEL device selector asks of a card, as far as a fleet file can say it; the rest is kept in the author's words.

Read are the forms people write: the driver, a least memory, a product by its full name. Nothing is approximated: a
condition that says more or something else (an upper bound, a capability, a pattern) is handed back as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic_core import PydanticCustomError

from fleetctl.documents.quantity import parse_bytes
from fleetctl.importers.accelerators import accelerator_of_product
from fleetctl.importers.cel import Expr, conjuncts, parse

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "!=", "!=": "=="}
_METHODS = {"isGreaterThan": ">", "isLessThan": "<"}

Subject = tuple[str, str, str]
"""What is asked about: `("capacity", "gpu.nvidia.com", "memory")`; `("driver", "", "")` for device.driver."""


@dataclass(slots=True)
class Wanted:
    """What the selectors of one device request ask for, all together.

    `drivers`: every driver named, by equality or as a domain; `memory`: the least memory as written, with its bytes;
    `types`: Ray's accelerator types, None = any; `products`: the full names these came from; `kept`: what has no
    counterpart, in the author's words.
    """

    drivers: set[str] = field(default_factory=set)
    memory: tuple[int, str] | None = None
    types: frozenset[str] | None = None
    products: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    @property
    def is_gpu(self) -> bool | None:
        """Tell whether this is a GPU by its driver's name (`gpu.nvidia.com`); None = no driver is named."""
        return all(driver.startswith("gpu.") for driver in self.drivers) if self.drivers else None


def read_selector(cel: str, wanted: Wanted) -> None:
    """Add what one selector asks for; raises CelError where it is not CEL."""
    tree = parse(cel)
    wanted.drivers.update(_domains(tree))
    for part in conjuncts(tree):
        if not (_driver(part, wanted) or _memory(part, wanted) or _product(part, wanted) or _says_nothing(part)):
            wanted.kept.append(" ".join(cel[part.start:part.end].split()))


def _driver(part: Expr, wanted: Wanted) -> bool:
    subject, operator, constant = _comparison(part)
    if subject is None or subject[0] != "driver" or operator != "==" or not isinstance(constant, str):
        return False
    wanted.drivers.add(constant)
    return True


def _memory(part: Expr, wanted: Wanted) -> bool:
    """Take a lower bound of the card's memory."""
    subject, operator, constant = _comparison(part)
    if subject is None or subject[0] != "capacity" or subject[2] != "memory" or operator not in (">=", ">"):
        return False
    try:
        least = parse_bytes(constant) + (operator == ">")
    except PydanticCustomError:
        return False
    if wanted.memory is None or least > wanted.memory[0]:
        wanted.memory = (least, str(least) if operator == ">" else str(constant))
    return True


def _product(part: Expr, wanted: Wanted) -> bool:
    """Take a product by its full name: `== "..."`, `in [...]`, or several of them joined by `||`."""
    names = list(_products(part))
    types = {accelerator_of_product(name) if name is not None else None for name in names}
    if not names or None in types:
        return False
    known = frozenset(str(name) for name in types)
    wanted.types = known if wanted.types is None else wanted.types & known
    wanted.products += [str(name) for name in names]
    return True


def _products(part: Expr) -> Iterator[str | None]:
    if part.kind == "binary" and part.value == "||":
        for side in part.parts:
            yield from _products(side)
        return
    subject, operator, constant = _comparison(part)
    asked = subject is not None and subject[0] == "attributes" and subject[2] == "productName"
    if asked and operator == "in" and isinstance(constant, tuple):
        yield from constant or (None,)
    else:
        yield constant if asked and operator == "==" and isinstance(constant, str) else None


def _says_nothing(part: Expr) -> bool:
    """Tell whether a condition holds for every whole card there is: `true`, `type == "gpu"`."""
    subject, operator, constant = _comparison(part)
    kind = subject is not None and subject[0] == "attributes" and subject[2] == "type"
    return (part.kind == "literal" and part.value is True) or (kind and operator == "==" and constant == "gpu")


def _comparison(part: Expr, *, negated: bool = False) -> tuple[Subject | None, str, object]:
    """Return what is compared, how, and with which constant; the subject is None where it is no such comparison."""
    if part.kind == "unary" and part.value == "!":
        return _comparison(part.parts[0], negated=not negated)
    left, operator, right = _sides(part)
    if left is None or right is None:
        return None, "", None
    subject, constant = _subject(left), _constant(right)
    if subject is None and operator in _MIRRORED:
        subject, constant, operator = _subject(right), _constant(left), _MIRRORED[operator]
    if negated:
        operator = _OPPOSITE.get(operator, "")
    return subject, operator, constant


def _sides(part: Expr) -> tuple[Expr | None, str, Expr | None]:
    if part.kind == "method" and part.value in _METHODS and len(part.parts) == 2:
        return part.parts[0], _METHODS[str(part.value)], part.parts[1]
    if part.kind != "binary":
        return None, "", None
    (left, right), operator = part.parts, str(part.value)
    for call, zero, sign in ((left, right, operator), (right, left, _MIRRORED.get(operator, ""))):
        if call.kind == "method" and call.value == "compareTo" and zero.kind == "literal" and zero.value == 0 and (
                zero.value is not False and len(call.parts) == 2):
            return call.parts[0], sign, call.parts[1]
    return left, operator, right


def _subject(expr: Expr) -> Subject | None:
    """Return what `device.capacity["gpu.nvidia.com"].memory` asks about; the last step may be an index, too."""
    if expr.kind == "select" and expr.value == "driver" and _is_device(expr.parts[0]):
        return ("driver", "", "")
    name = _step(expr)
    owner = expr.parts[0] if name is not None else None
    domain = _step(owner) if owner is not None and owner.kind == "index" else None
    if name is None or owner is None or domain is None:
        return None
    collection = owner.parts[0]
    if collection.kind == "select" and collection.value in ("capacity", "attributes") and _is_device(
            collection.parts[0]):
        return (str(collection.value), domain, name)
    return None


def _step(expr: Expr) -> str | None:
    """Return the name by which a selection or an index goes one step down."""
    if expr.kind == "select":
        return str(expr.value)
    if expr.kind == "index" and expr.parts[1].kind == "literal" and isinstance(expr.parts[1].value, str):
        return expr.parts[1].value
    return None


def _is_device(expr: Expr) -> bool:
    return expr.kind == "name" and expr.value == "device"


def _constant(expr: Expr) -> object:
    """Return the value of a literal, of `quantity("...")`, or of a list of texts; None for anything else."""
    if expr.kind == "literal":
        return expr.value
    if expr.kind == "call" and expr.value == "quantity" and len(expr.parts) == 1:
        return _constant(expr.parts[0])
    if expr.kind == "list":
        values = tuple(_constant(part) for part in expr.parts)
        return values if all(isinstance(value, str) for value in values) else None
    return None


def _domains(expr: Expr) -> Iterator[str]:
    """Yield every driver whose attributes or capacity are looked at."""
    if expr.kind == "index" and expr.parts[0].kind == "select" and expr.parts[0].value in ("capacity", "attributes"):
        domain = _step(expr)
        if domain is not None:
            yield domain
    for part in expr.parts:
        yield from _domains(part)
