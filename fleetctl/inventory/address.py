"""From the address on the command line to the URL of the cluster's dashboard.

`http(s)://...` is the dashboard itself, and so is `host:8265`, its default port. `auto` and any other `host:port` mean
a Ray whose dashboard must be looked up. That needs ray and runs in a subprocess, because the client never imports ray.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fleetctl.errors import ClusterUnreachable, InventoryError

LOOKUP_TIMEOUT_S, WAITING_S = 30.0, 3.0
DASHBOARD_PORT = ":8265"
ADDRESSES = "http(s)://host:8265 or host:8265 for a Ray dashboard; auto or host:port for a Ray to look up"

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_NO_RAY = 3
_LOOKUP = f"""
import sys
sys.path = [one for one in sys.path if one]  # not the current folder: it may be the checkout of a change
try:
    from ray.dashboard.utils import ray_address_to_api_server_url
except ImportError:
    sys.exit({_NO_RAY})
print("url=" + ray_address_to_api_server_url(sys.argv[1]))
"""


def dashboard_url(address: str, environ: Mapping[str, str], *, python: str = sys.executable,
                  on_waiting: Callable[[], None] = lambda: None) -> str:
    """Return the dashboard's URL for `address`, without a trailing slash.

    `environ` is for the lookup process; `python` is an interpreter with ray; `on_waiting` is called when the lookup is
    slow. Raises InventoryError for an address of no known form and ClusterUnreachable when no Ray is found there.
    """
    address = checked_address(address)
    if address.endswith(DASHBOARD_PORT) and "://" not in address:
        return f"http://{address}"
    return address if "://" in address else _look_up(address, environ, python, on_waiting)


def checked_address(address: str) -> str:
    """Return the address, without a URL's trailing slash; raises InventoryError for an address of no known form."""
    if "://" in address:
        return _checked_url(address)
    if address == "auto" or _HOST_PORT.fullmatch(address):
        return address
    raise InventoryError(f"{address!r} is not a cluster address", hint=f"allowed: {ADDRESSES}")


def _checked_url(address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InventoryError(f"{without_secret(address)!r} is not a cluster address",
                             hint=f"allowed: {ADDRESSES}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InventoryError(f"the address {without_secret(address)} has more than scheme, host, port and path",
                             hint="plans and logs show addresses: a token belongs in RAY_AUTH_TOKEN")
    return address.rstrip("/")


def without_secret(address: str) -> str:
    """Remove the parts of an address that may be secret, for a message."""
    return re.sub(r"//.*@", "//***@", address).partition("?")[0].partition("#")[0]


def _look_up(address: str, environ: Mapping[str, str], python: str, on_waiting: Callable[[], None]) -> str:
    waiting = threading.Timer(WAITING_S, on_waiting)
    waiting.start()
    try:
        found = subprocess.run([python, "-c", _LOOKUP, address], env=dict(environ), capture_output=True, text=True,
                               errors="replace", timeout=LOOKUP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterUnreachable(f"no Ray answered at {address!r} within {LOOKUP_TIMEOUT_S:.0f} s",
                                 hint=_lookup_hint(address)) from None
    finally:
        waiting.cancel()
    if found.returncode == _NO_RAY:
        raise InventoryError(f"looking up the address {address!r} needs ray, which is not installed here",
                             hint="give the dashboard's own address (http://ray-head:8265), or "
                                  "pip install 'ray[default]'")
    urls = [line.removeprefix("url=") for line in found.stdout.splitlines() if line.startswith("url=http")]
    if found.returncode != 0 or not urls:
        errors = [line.strip() for line in found.stderr.splitlines() if line.strip()]
        why = f": {errors[-1][:200]}" if errors else ""
        raise ClusterUnreachable(f"no Ray with a dashboard was found at {address!r}{why}",
                                 hint=_lookup_hint(address))
    return urls[-1].rstrip("/")


def _lookup_hint(address: str) -> str:
    meant = f"did you mean the dashboard at http://{address}? " if ":" in address else ""
    return f"{meant}Allowed: {ADDRESSES}"
