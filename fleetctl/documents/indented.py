"""Documents as indented JSON, the way they are shown and saved."""

from __future__ import annotations

import json
import re

from pydantic import BaseModel

_SPELLED_OTHERWISE = re.compile(r": -?(?:0\.0000|[0-9.]+e)")


def indented_json(document: BaseModel) -> str:
    """Return a document by its published names, indented by two, with a line end: what `json.dumps` would say.

    No document has a list of fractions.
    """
    text = document.model_dump_json(by_alias=True, indent=2)
    if _SPELLED_OTHERWISE.search(text):  # pydantic is ten times as fast, but writes 1e-6 where Python writes 1e-06
        text = json.dumps(document.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False)
    return text + "\n"
