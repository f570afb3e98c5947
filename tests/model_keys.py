"""Model keys for tests: one of NDIF's, and any that a fleet file may have."""

from __future__ import annotations

from hypothesis import strategies as st

from fleetctl.documents.base import is_model_key

NDIF_KEY = 'LanguageModel:{"repo_id": "openai-community/gpt2", "revision": "main"}'
CHECKPOINT = "openai-community/gpt2"

_CHARACTERS = st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" \"'`{}[]:#/\\$*?|&;<>-=,@~!%")
_PIECES = st.text(_CHARACTERS, max_size=30) | st.sampled_from([NDIF_KEY, "org/m", "::error::", "--yes", "{{x}}", "/3"])

model_keys = (st.lists(_PIECES, min_size=1, max_size=4).map("".join).map(lambda text: text.strip()[:512].strip())
              .filter(is_model_key))
"""Any printable keys: with blanks, quotes and braces, names of flags, and what looks like a command or an id."""
