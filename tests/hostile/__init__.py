"""Hostile changes through the commands that read them, judged from outside; `make hostile`."""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:  # the stand-ins import each other as pytest finds them
    sys.path.insert(0, _TESTS)
