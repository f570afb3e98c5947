"""Which parts of a shape are secret, and masking them wherever a shape is shown or logged.

Masked as a whole: values of engine environments, bodies of requests to engines. Masked within a text, an argument or
the path of a request: the value of a flag like `--api-key`, and what has the form of a token, a private key or a login
in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

MASK = "***"
CHANGED_MASK = "***(changed)"
"""Shown in an argument if its secret is another than in the other version."""
_ENVIRONMENT = ("engine", "env")
_BODY = ("reload", "http", "body")
_REQUEST_PATH = ("http", "path")
COMMAND_LINE = ("command", "args")
"""The keys whose lists together are one command line, of an engine or of a probe."""

Secret = tuple[int, int, str]
"""A secret in a text: the indices of its first character and of the one after it, and the words for it in a message."""

_FORMS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----.*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z)",
    "the login in a URL": r"(?:(?<=http://)|(?<=https://))[^\s/?#@\"']+(?=@)|(?<=://)[^\s/?#@:\"']*:[^\s/?#\"']+(?=@)",
    "a token of Hugging Face":
        r"(?<![A-Za-z0-9])hf_(?:[A-Za-z0-9]{20,}|(?=[a-zA-Z]*[0-9A-Z])[A-Za-z0-9]{8,})",
    "an API key": r"(?<![\w-])(?:sk-(?:[\w-]{8,}|(?=[\w-]*\d)[\w-]{5,})|nvapi-[\w-]{16,}|AIza[\w-]{30,})",
    "a token of GitHub": r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{12,}|github_pat_\w{12,})",
    "a token of GitLab": r"(?<![\w-])gl(?:pat|dt|rt|cbt|ptt|ft|agent|soat)-[\w-]{16,}",
    "a token of Slack": r"(?<![\w-])xox[a-z]-[\w-]{10,}",
    "an access key of AWS": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{12,}(?![A-Za-z0-9])",
    "a JSON Web Token": r"(?<![\w.-])eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?",
    "the login in a header":
        r"(?i:(?<=authorization: bearer )|(?<=authorization: basic )|(?<=authorization: token ))[^\s\"']{3,}|"
        r"(?i:(?<=bearer ))(?=[\w.~+/-]*\d)[\w.~+/-]{8,}=*",
}
"""Texts that are secret wherever they are, by what they are."""
_FORM = re.compile("|".join(map("({})".format, _FORMS.values())), re.DOTALL)

MAY_BE_SECRET = re.compile(r"(?i:token|secret|passw|passph|key|credential|sig|pwd|bearer |authorization)|-----BEGIN|"
                           r"://[^/\s]*@|hf_|sk-|nvapi-|AIza|gh[a-z]{1,7}_|gl[a-z]{2,5}-|xox[a-z]-|A[KS]IA|eyJ")
"""A quick test: any text with a secret, by the name of its flag or variable or by its form, has a match."""

_VALUE = r"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s\"',;&|]+))"
_ASSIGNED = re.compile(
    r"(?P<name>(?<![\w.$-])-{0,2}[A-Za-z][\w.-]*)(?:=|(?<=[\w])[\"']\s*:\s*|(?<=[\w]):\s+(?=\S+\s*$))" + _VALUE)
"""name=value, "name": "value", and `Name: value` as in a header."""
_FLAGGED = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w.-]*)\s+(?!-)" + _VALUE)
"""--name value, in a text that a shell splits."""
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_FLAG_WITH_VALUE = re.compile(r"(--?[A-Za-z][\w.-]*)=(.+)", re.DOTALL)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORD = re.compile(r".+token|secrets?|.*password|.*passwd|.*passphrase|apikeys?|credentials?|signature|sig|pwd")
_BEFORE_KEY = re.compile("cache|sort|routing|partition|primary|public|foreign|group|hash|lookup|index|shuffle|color|"
                         "lora|label|map|row|ssl|tls|host")
_BEFORE_TOKEN = re.compile(
    "bos|eos|eot|eod|pad|unk|sep|cls|mask|image|img|video|audio|speech|vision|start|begin|end|stop|think|thinking|special|"
    "draft|next|prefix|suffix|bot|fim|max|min|num|per|first|last|single|input|output|prompt|placeholder|tool|delimiter")
"""Words that make the key one of a data structure or a file, and the token one of a text."""
_ABOUT = re.compile("paths?|files?|dir|folder|names?|ids?|ur[il]|host|port|type|size|len|length|count|limit|dtype|"
                    "enabled|disabled|ttl|expiry|mode|header|format|map|env|var|version|parallelism")
"""Last words in the names of settings that are about a secret and hold none."""
_ADDED = re.compile(r"value|base|raw|string|b64|base64|\d+")
_HARMLESS = re.compile(r"(?i:|true|false|yes|no|on|off|none|null|nil|empty|auto|default|dummy|\*+(?:\(changed\))?|<.*>|"
                       r"\[.*\]|\{.*|(?:file:/|~|\.{0,2})/[\w.@/-]*)", re.DOTALL)
"""Values that no secret has: empty, a switch, a placeholder, a list or mapping, a path, what is masked already."""
_NUMBER = re.compile(r"[-+]?[\d_.]+")
_COUNT_DIGITS = 5
"""The most digits of a number that counts something."""
_REFERENCE = re.compile(r"(?<!\$)\$[({A-Za-z_]")


@lru_cache(maxsize=1024)
def is_secret_name(name: str, *, of_variable: bool = False) -> bool:
    """Return whether a flag or a key names a secret: `--api-key`, clientSecret.

    In the name of a variable (HF_TOKEN, TOKEN_OF_PROD) other words may follow.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    while words and _ADDED.fullmatch(words[-1]):
        words.pop()
    if not words or _ABOUT.fullmatch(words[-1]):
        return False
    pairs = list(pairwise(["", *words]))
    return any(_names_secret(before, word, of_variable) for before, word in (pairs if of_variable else pairs[-1:]))


def _names_secret(before: str, word: str, of_variable: bool) -> bool:
    if word in ("key", "keys"):
        return not _BEFORE_KEY.fullmatch(before) if before else of_variable
    return not _BEFORE_TOKEN.fullmatch(before) if word == "token" else _SECRET_WORD.fullmatch(word) is not None


def is_secret_value(name: str, value: str) -> bool:
    """Return whether a variable's literal value is a secret: by the variable's name, or by the value's form."""
    return bool(secrets_in(value)) or (is_secret_name(name, of_variable=True) and _is_literal(value, name))


def _is_literal(value: str, name: str) -> bool:
    """Return whether a value may be a secret: it is no reference, such as `$(API_KEY)`, and not harmless."""
    if _NUMBER.fullmatch(value):
        return len(value) > (1 if "pass" in name.lower() else _COUNT_DIGITS)
    return not _REFERENCE.search(value) and not _HARMLESS.fullmatch(value)


@lru_cache(maxsize=4096)  # the models of a fleet have most of their words in common
def secrets_in(text: str) -> tuple[Secret, ...]:
    """Return the secrets in one text, in order; they do not overlap."""
    found = [(*match.span(match.lastindex or 0), list(_FORMS)[(match.lastindex or 1) - 1])
             for match in _FORM.finditer(text)]
    for pattern in (_ASSIGNED, _FLAGGED) if len(text) > 6 else ():
        for match in pattern.finditer(text):
            if is_secret_name(match["name"]):
                group = next(name for name in ("double", "single", "bare") if match[name] is not None)
                found.append((*match.span(group), f"the value of {match['name']}"))
    return _separate((start, end, what) for start, end, what in found if _is_literal(text[start:end], what))


def _separate(found: Iterator[Secret]) -> tuple[Secret, ...]:
    """Return the secrets in order, each overlapping pair as one."""
    separate: list[Secret] = []
    for start, end, what in sorted(found, key=lambda secret: (secret[0], -secret[1])):
        if separate and start < separate[-1][1]:
            first, last, named = separate[-1]
            separate[-1] = (first, max(end, last), named)
        else:
            separate.append((start, end, what))
    return tuple(separate)


def secrets_in_words(words: Sequence[str]) -> Iterator[tuple[int, tuple[Secret, ...]]]:
    """Yield the index of each word of a command line that has secrets, with its secrets."""
    for at, (before, word) in enumerate(pairwise(["", *words])):
        own = _FLAG_WITH_VALUE.fullmatch(word)
        flag, value = own.groups() if own else (before if _FLAG.fullmatch(before) else "", word)
        if flag and is_secret_name(flag) and not value.startswith("-") and _is_literal(value, flag):
            yield at, ((len(word) - len(value), len(word), f"the value of {flag}"),)
        elif found := secrets_in(word):
            yield at, found


def variable_for(flag: str) -> str:
    """Return a name for the variable that can hold the value of a flag: API_KEY for `--api-key`."""
    return re.sub("[^A-Z0-9]+", "_", flag.upper()).strip("_") or "SECRET"


def masked_text(text: str, secrets: Sequence[Secret] | None = None) -> str:
    """Return a text with its secrets masked; by default those of `secrets_in`."""
    for start, end, _ in reversed(secrets_in(text) if secrets is None else secrets):
        text = text[:start] + MASK + text[end:]
    return text


def masked_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with their secrets masked."""
    shown = list(words)
    for at, secrets in secrets_in_words(words):
        shown[at] = masked_text(words[at], secrets)
    return shown


def is_env_value(path: tuple[str | int, ...]) -> bool:
    """Return whether a path leads to the value of one environment variable."""
    return path[-3:-1] == _ENVIRONMENT


def is_secret(path: tuple[str | int, ...]) -> bool:
    """Return whether a path leads to a masked value: of an environment variable, or in the body of a request."""
    keys = [key for key in path if isinstance(key, str) and not key.isdigit()]  # a reload may have several requests
    return is_env_value(path) or any(tuple(keys[at : at + 3]) == _BODY for at in range(len(keys) - 2))


def variable_of(path: tuple[str | int, ...]) -> str | None:
    """Return the environment variable a path is about; "" for the whole environment, None for anything else."""
    at = next((at for at in range(2, len(path) + 1) if path[at - 2 : at] == _ENVIRONMENT), None)
    return None if at is None else without_value(str(path[at])) if at < len(path) else ""


def without_value(name: str) -> str:
    """Mask the value of a NAME=VALUE that was written instead of a variable's name."""
    variable, sign, value = name.partition("=")
    return f"{variable}={MASK if value else ''}" if sign else name


def masked(value: object, path: tuple[str | int, ...] = (), before: object = ()) -> object:
    """Return the JSON value at `path` with its secrets masked; `before` = for `args`, the command before them.

    A `fromNode` reference stays: it is the name of a variable, not its value.
    """
    if is_env_value(path):
        return value if value is None or isinstance(value, dict) else MASK
    if is_secret(path) and not isinstance(value, (dict, list)):
        return None if value is None else MASK
    above = _BODY if is_secret(path) else path[-3:]
    if isinstance(value, list):
        if path[-1:] and path[-1] in COMMAND_LINE and all(isinstance(word, str) for word in value):
            flag = [word for word in before[-1:] if isinstance(word, str)] if isinstance(before, list) else []
            return masked_words([*flag, *value])[len(flag):]
        return [masked(item, (*above, at)) for at, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: masked(item, (*above, key), value.get("command")) for key, item in value.items()}
    return masked_text(value) if isinstance(value, str) and path[-2:] == _REQUEST_PATH else value
