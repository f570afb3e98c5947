"""Problems in fleet files: message, place, allowed values, nearest spelling.

Codes are stable: an unused one stays reserved. FL001-FL019 are about reading the text, FL020-FL039 about one value or
key, FL040-FL059 about several fields together; FL060-FL079 are warnings; from FL080: errors in weights and updates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]

CODES: dict[str, str] = {
    "FL001": "the file cannot be read",
    "FL002": "the folder holds no fleet file",
    "FL003": "the same file is given twice",
    "FL004": "the file is too large",
    "FL005": "the file is not UTF-8 text",
    "FL006": "the file holds control characters",
    "FL007": "the file holds no document",
    "FL008": "not valid YAML",
    "FL009": "a tab where YAML requires spaces",
    "FL010": "the same key twice in one mapping",
    "FL011": "a key that is not text",
    "FL012": "a YAML tag",
    "FL013": "an alias that has no anchor or holds itself",
    "FL014": "nested too deeply, or too much in one document",
    "FL015": "a merge key (<<) that does not name mappings",
    "FL016": "a number that is too long",
    "FL017": "a layout that fmt cannot preserve",
    "FL018": "extends names a file that cannot be read",
    "FL019": "too many problems to list",
    "FL020": "unknown key",
    "FL021": "missing key",
    "FL022": "wrong type",
    "FL023": "number or length out of range",
    "FL024": "not one of the known values",
    "FL025": "not a quantity",
    "FL026": "not a duration",
    "FL027": "not a label selector",
    "FL028": "not a label key",
    "FL029": "not a DNS label",
    "FL030": "not a model key",
    "FL031": "a number of GPUs that no set of cards adds up to",
    "FL032": "an environment value that is not text",
    "FL033": "an environment name that cannot be used",
    "FL034": "a probe without exactly one of http, tcp and exec",
    "FL035": "text in a form that is not allowed here",
    "FL036": "a base that is not exactly one Fleet document",
    "FL037": "house rules that cannot be read, or are not a JSON Schema",
    "FL038": "a house rule is broken",
    "FL039": "a shape that is not in spec.shapes, is defined twice, or is set together with workers",
    "FL040": "a model key twice in one fleet",
    "FL041": "a group name twice in one model",
    "FL042": "count on a member that is not a Worker",
    "FL043": "a Standalone member beside others",
    "FL044": "Workers without a Leader",
    "FL045": "a Leader without Workers",
    "FL046": "more than one Leader in a group",
    "FL047": "a group that claims no GPU, VRAM or CPU",
    "FL048": "a $(FLEETCTL_...) reference that fleetctl does not set",
    "FL049": "documents of different fleets in one run",
    "FL050": "spec.cluster twice in one fleet",
    "FL051": "spec.defaults twice in one fleet",
    "FL052": "a fleet without models",
    "FL053": "a placement that can never be satisfied",
    "FL054": "a replica with too many members",
    "FL055": "files that extend each other in a circle, too deeply, or too many",
    "FL056": "a base that would be merged twice",
    "FL057": "spec.policy twice in one fleet",
    "FL058": "a node type twice in spec.cluster.grow",
    "FL059": "serving.groups names a group that the model does not have",
    "FL060": "a probe that is never used",
    "FL061": "a placement setting without effect",
    "FL062": "a shell variable where no shell will expand it",
    "FL063": "a $(FLEETCTL_...) reference in an environment value, which is not expanded",
    "FL064": "a protected model that is not in the fleet",
    "FL065": "a fixed port that replicas on one node cannot share",
    "FL066": "flags that divide a model over a different number of GPUs than its shape has",
    "FL067": "a gang that may mix types of cards",
    "FL068": "a variable in an environment value, which is not expanded",
    "FL069": "an amount of memory of only a few bytes",
    "FL075": "a shape that no model uses",
    "FL076": "a quota that selects no model",
    "FL079": "a cooldown whose first is longer than its max",
    "FL080": "an origin or a view of weights without exactly one kind",
    "FL081": "not a regular expression",
    "FL082": "a shard with more or fewer parts than its group has members",
    "FL083": "cold on a model without weights",
    "FL085": "an in-place update without the request that makes engines reload",
    "FL086": "an in-place update of a model whose engines have no weights",
}


def as_utf8(text: str) -> str:
    """Return the text with what UTF-8 cannot encode escaped: raw bytes of a file name, lone surrogates in JSON."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem at one place; line and column count from 1.

    `source_line` is for terminals, and absent if the line may hold a secret.
    """

    code: str
    message: str
    file: str
    line: int = 1
    column: int = 1
    path: str = ""
    allowed: str | None = None
    suggestion: str | None = None
    source_line: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("message", "file", "allowed", "suggestion"):
            if value := getattr(self, name):  # a file name may not be UTF-8, which no document can hold
                object.__setattr__(self, name, as_utf8(value))

    @property
    def severity(self) -> Severity:
        """The severity of its code; only errors keep a fleet from being used."""
        return severity_of(self.code)

    def __str__(self) -> str:
        extra = "".join(
            [f"; allowed: {self.allowed}" if self.allowed else "",
             f"; did you mean {self.suggestion}?" if self.suggestion else ""]
        )
        return f"{self.file}:{self.line}:{self.column}: {self.severity} {self.code}: {self.message}{extra}"

    def as_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object, without empty keys."""
        keys = ("code", "severity", "message", "file", "line", "column", "path", "allowed", "suggestion")
        return {key: value for key in keys if (value := getattr(self, key)) not in (None, "")}


def severity_of(code: str) -> Severity:
    """Return the severity of a code: FL060 to FL079 are warnings."""
    return "warning" if "FL060" <= code < "FL080" else "error"
