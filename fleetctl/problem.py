"""Problems in fleet files: message, position, what is allowed, a suggestion.

Codes are stable: an unused code stays reserved. FL001-FL019 reading the text, FL020-FL039 one value or key,
FL040-FL059 several fields together, FL060-FL079 warnings, from FL080 on errors in weights and their updates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]

CODES: dict[str, str] = {
    "FL001": "the file cannot be read",
    "FL002": "the folder has no fleet file",
    "FL003": "the same file is given twice",
    "FL004": "the file is too large",
    "FL005": "the file is not UTF-8 text",
    "FL006": "the file has control characters",
    "FL007": "the file has no document",
    "FL008": "not valid YAML",
    "FL009": "a tab in the indentation",
    "FL010": "a duplicate key in a mapping",
    "FL011": "a key that is not text",
    "FL012": "a YAML tag",
    "FL013": "an alias without an anchor, or inside its own anchor",
    "FL014": "nested too deeply, or too many values",
    "FL015": "a merge key (<<) that does not name mappings",
    "FL016": "a number with too many characters",
    "FL017": "a layout that fmt cannot format",
    "FL018": "extends names a file that cannot be read",
    "FL019": "more problems than can be listed",
    "FL020": "unknown key",
    "FL021": "missing key",
    "FL022": "wrong type",
    "FL023": "number or length out of range",
    "FL024": "not one of the allowed values",
    "FL025": "not a quantity",
    "FL026": "not a duration",
    "FL027": "not a label selector",
    "FL028": "not a label key",
    "FL029": "not a DNS label",
    "FL030": "not a model key",
    "FL031": "a GPU amount that cards cannot provide",
    "FL032": "an environment value that is not text",
    "FL033": "an invalid or reserved environment name",
    "FL034": "a probe without exactly one of http, tcp and exec",
    "FL035": "text in an invalid form",
    "FL036": "a base that is not exactly one Fleet document",
    "FL037": "house rules that cannot be read, or are not a valid JSON Schema",
    "FL038": "a violation of a house rule",
    "FL039": "a shape that does not exist, a duplicate shape, or a shape beside workers",
    "FL040": "a duplicate model key in a fleet",
    "FL041": "a duplicate group name in a model",
    "FL042": "count on a member that is not a Worker",
    "FL043": "a Standalone member that is not alone in its group",
    "FL044": "Workers without a Leader",
    "FL045": "a Leader without Workers",
    "FL046": "more than one Leader in a group",
    "FL047": "a group that claims no GPU, VRAM or CPU",
    "FL048": "a $(FLEETCTL_...) reference that fleetctl does not set",
    "FL049": "different fleet names in one run",
    "FL050": "spec.cluster set twice in one fleet",
    "FL051": "spec.defaults set twice in one fleet",
    "FL052": "a fleet without models",
    "FL053": "a placement that is impossible",
    "FL054": "a replica with too many members",
    "FL055": "files that extend each other in a cycle, too deeply, or too many of them",
    "FL056": "a base that would be merged twice",
    "FL057": "spec.policy set twice in one fleet",
    "FL058": "a duplicate node type in spec.cluster.grow",
    "FL059": "serving.groups names a group that the model does not have",
    "FL060": "a probe that is never used",
    "FL061": "a placement setting without effect",
    "FL062": "a shell variable without a shell to expand it",
    "FL063": "a model that no card can hold, or that takes more of a card than it claims",
    "FL064": "a protected model that is not in the fleet",
    "FL065": "a fixed port, which replicas on one node cannot share",
    "FL066": "flags that divide a model over more or fewer GPUs than it claims",
    "FL067": "a gang that may get different types of cards",
    "FL068": "a shell variable in an environment value, which is not expanded",
    "FL069": "a tiny amount of memory, probably without its unit",
    "FL070": "a secret in plain text",
    "FL071": "a flag with a blank in one word, usually its value",
    "FL072": "a typographic dash or quote where programs expect one of ASCII",
    "FL073": "a model that clients cannot request: its key cannot be a name in requests, and it has no other",
    "FL074": "a view with one rank for a member of several GPUs",
    "FL075": "a shape that no model uses",
    "FL076": "a quota that matches no model, or that allows less than variants have as their min",
    "FL077": "a container that goes on running when its engine is ended",
    "FL078": "a reload of vLLM that leaves answers of the former weights in its prefix cache",
    "FL079": "a first cooldown that is longer than the maximum",
    "FL080": "an origin or a view of weights without exactly one kind",
    "FL081": "not a regular expression",
    "FL082": "a shard with more or fewer parts than its group has members",
    "FL083": "cold on a model without weights",
    "FL084": "a view by the ranks of GPUs, for an engine that does not count one for each GPU of its group",
    "FL085": "an update in place without a reload request",
    "FL086": "an update in place of a model without weights",
    "FL087": "house rules that take too long, or too much memory",
    "FL088": "spec.history set twice in one fleet",
    "FL089": "environment variables that refer to each other in a circle",
    "FL090": "an argument or a variable that is too long for Linux",
    "FL091": "a model described twice or not at all, or a description that cannot be read",
    "FL092": "a claim of vram: auto for a model that is not described, or an engine whose memory is not known",
    "FL093": "a duplicate variant name in one model",
    "FL094": "a model with variants, and with workers or a shape beside them",
    "FL095": "a min or max of variants that contradicts the other, or the replicas of the model",
    "FL096": "two variants of a model that are the same",
    "FL097": "variants of a model that are spread over different labels",
    "FL099": "a variable for compile caches that env sets, too",
}


def as_utf8(text: str) -> str:
    """Return the text with escapes for characters that UTF-8 lacks: bytes of a file name, or half a pair in JSON."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem at one position; line and column count from 1.

    `source_line` is for terminals, and None if the line may hold a secret. `model` = the key of the model it is in.
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
    model: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name in ("message", "file", "allowed", "suggestion"):
            if value := getattr(self, name):  # no document can hold text that is not UTF-8, such as in a file name
                object.__setattr__(self, name, as_utf8(value))

    @property
    def severity(self) -> Severity:
        """The severity; only errors make a fleet unusable."""
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
