"""A `python` for runners without a network: its new environments already contain the pinned packages, and pip has no
index.

So `pip install` has nothing to fetch, and fails if a pinned version is missing. fleetctl itself is not included. pip
is included, so that it is not unpacked again.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

# pip's names for: no index, build with the installed packages, compile nothing in advance
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1"}
SCRIPT = """\
#!/bin/sh
set -e
if [ "$2 $3" != "-m venv" ]; then exec {python} "$@"; fi
{python} "$@" --without-pip
echo {packages} > "$(echo "$4"/lib/python3.*/site-packages)/fetched.pth"
"""


def offline_python(folder: Path) -> Path:
    """Create it in a new folder, to be put first on the path; return the folder."""
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text(SCRIPT.format(python=sys.executable, packages=sysconfig.get_path("purelib")))
    program.chmod(0o755)
    return folder
