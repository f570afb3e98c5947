"""The way to an address: directly or through a proxy, and whether others can read what is sent on it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from fleetctl.agent.weights.proxy import Proxy, is_listed, is_loopback, proxy_for
from fleetctl.errors import InventoryError
from fleetctl.inventory.access import tls_context

PLAIN_HTTP_VARIABLE = "FLEETCTL_PLAIN_HTTP"
WITHOUT_PROXY = "to reach it without the proxy, add its host or its network to NO_PROXY"

Client = TypeVar("Client")


class Route:
    """The way to `url`. `proxy` = the proxy that requests go through, if any; `via` = its mention in a message."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.proxy: Proxy | None = proxy_for(url)
        self.via = f" through {self.proxy}" if self.proxy else ""

    def open(self, make: Callable[..., Client], certificate: tuple[Path, Path] | None = None) -> Client:
        """Return an HTTP client for this way, made by `make`, which is httpx's class with the other settings.

        Raises InventoryError for an unusable proxy or certificate.
        """
        import httpx

        # loading the certificates takes time that plain HTTP can save
        verify = tls_context(certificate) if self.url.startswith("https") else False
        try:
            return make(verify=verify, trust_env=False, proxy=self.proxy.url if self.proxy else None)
        except (ValueError, ImportError, httpx.InvalidURL):
            if self.proxy is None:
                raise
            raise InventoryError(f"{self.proxy.variable} is not a usable proxy address",
                                 hint="allowed: http://host:port; NO_PROXY lists hosts and networks to reach directly"
                                 ) from None


def is_readable_by_others(url: str, expected: str) -> bool:
    """Return whether a secret sent to `url` crosses a network unencrypted; `expected` = hosts, where this is intended.

    Own names and addresses of this machine cross none, except through a proxy. Nothing is looked up.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:  # not a URL: the request fails with a better message
        return False
    near = is_loopback(host) or (_is_own(host) and proxy_for(url) is None)
    return parts.scheme == "http" and not (near or is_listed(host, port, expected))


def _is_own(host: str) -> bool:
    """Return whether a host is this machine's name or one of its addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = socket.gethostname().lower()
        return host.lower() in (name, name.partition(".")[0])
    if address.is_unspecified:  # of no machine, although it can be bound
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))  # only a machine's own addresses can be bound
    except OSError:
        return False
    return True
