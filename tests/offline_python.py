"""A `python` for runners without a network: its new environments hold the pinned packages already, and pip no index.

So `pip install` has nothing to fetch, and fails where a pinned version is not there. fleetctl itself is not among them.
pip is, so that it need not be unpacked once more.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

# pip's words for: no index, build with the installed packages, compile nothing in advance
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1"}
SCRIPT = """\
#!/bin/sh
set -e
if [ "$2 $3" != "-m venv" ]; then exec {python} "$@"; fi
{python} "$@" --without-pip
echo {packages} > "$(echo "$4"/lib/python3.*/site-packages)/fetched.pth"
"""


def offline_python(folder: Path) -> Path:
    """Put it into a new folder, to stand first on the path, and return the folder."""
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text(SCRIPT.format(python=sys.executable, packages=sysconfig.get_path("purelib")))
    program.chmod(0o755)
    return folder
