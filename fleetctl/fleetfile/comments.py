"""The comments of a YAML text, counted by the tokens of its scanner: whatever `#` stands between two tokens.

`fmt` holds its own reader of layouts against this one, so the two share nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml
from yaml import cyaml

_SCANNER: Any = vars(cyaml)["CParser"]
_COMMENT = re.compile(r"#[^\n]*")
_BEHIND_HEADER = re.compile(r"[^\n]*?[ \t](#[^\n]*)")


def count_comments(text: str) -> Counter[str]:
    """Return how many times a sound YAML text has each comment, those inside brackets and behind `|` too."""
    found: Counter[str] = Counter()
    end = 0
    tokens: Any = yaml.scan(text, Loader=_SCANNER)
    for token in tokens:
        start = token.start_mark.index
        found.update(comment.rstrip() for comment in _COMMENT.findall(text, end, start))
        end = token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            behind = _BEHIND_HEADER.match(text, start, end)
            found.update([behind[1].rstrip()] if behind else [])
    return found
