#!/usr/bin/env python3
"""Ask every replica of google/magika for the types of some files: `ask.py FILE...`. Only their content is sent."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

status = subprocess.run(["fleetctl", "status", "google/magika", "--format", "json"], stdout=subprocess.PIPE, check=True)
for replica in json.loads(status.stdout)["replicas"]:
    engine = replica["members"][0]
    url = f"http://{engine['address']}:{engine['port']}/classify"
    sys.stdout.write(f"POST {url}\n")
    for name in sys.argv[1:]:
        with urllib.request.urlopen(url, data=Path(name).read_bytes(), timeout=30) as response:
            answer = json.load(response)
        sure = f"{answer['label']}, {answer['score']:.1%} sure"
        sys.stdout.write(f"  {Path(name).name}: {sure} (replica {answer['replica']})\n")
