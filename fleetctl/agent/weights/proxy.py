"""Which proxy a request goes through, from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

The client uses it for all its requests, the agent for origins of weights. NO_PROXY is read as curl and Go's httpproxy
read it, networks included; where the two differ, the request goes directly.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
import urllib.request
from typing import Mapping, NamedTuple, Optional, Union

_ENTRY = re.compile(r"(?:\[(?P<bracketed>[^\]]*)\](?P<bits>/\d+)?|(?P<plain>[^:]*|[^:]*:[^:]*:.*))(?::(?P<port>\d+))?")
_PORTS = {"http": 80, "https": 443}

_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Proxy(NamedTuple):
    """A proxy: its URL, which may hold a login, and the variable that names it."""

    url: str
    variable: str

    def __str__(self) -> str:
        """Name it without its login: "the proxy http://proxy:3128 (HTTP_PROXY)"."""
        scheme, _, rest = self.url.partition("://")
        place, login = re.split(r"[/?#]", rest.rpartition("@")[2], maxsplit=1)[0], "***@" if "@" in rest else ""
        return f"the proxy {scheme}://{login}{place} ({self.variable})"


def proxy_for(url: str, settings: Optional[Mapping[str, str]] = None) -> Optional[Proxy]:
    """Return the proxy for requests to `url`, None for a direct connection.

    `settings` = URLs of proxies by scheme, with `all` and `no`, as urllib reads them from this process's environment.
    """
    settings = urllib.request.getproxies() if settings is None else settings
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # not a URL: the request fails with a better message
        return None
    scheme = next((scheme for scheme in (parts.scheme, "all") if settings.get(scheme)), None)
    if scheme is None or is_loopback(host) or is_listed(host, port, settings.get("no", "")):
        return None
    named = settings[scheme]
    return Proxy(named if "://" in named else f"http://{named}", f"{scheme.upper()}_PROXY")


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address: no proxy could reach it."""
    address = _address(host)
    return _plain(host) == "localhost" if address is None else address.is_loopback


def is_listed(host: str, port: Optional[int], entries: str) -> bool:
    """Return whether a list such as NO_PROXY contains a host.

    Entries are separated by commas or spaces: a name (with all names below it), an address, a network such as
    10.0.0.0/8, each with or without `:port`, or `*` for every host.
    """
    return any(entry == "*" or _matches(entry, host, port) for entry in re.split(r"[,\s]+", entries) if entry)


def _matches(entry: str, host: str, port: Optional[int]) -> bool:
    found = _ENTRY.fullmatch(entry.rpartition("://")[2])
    if found is None or (found["port"] and int(found["port"]) != port):
        return False
    wanted = found["plain"] if found["bracketed"] is None else found["bracketed"] + (found["bits"] or "")
    address = _address(host)
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        name, below = _plain(host), _plain(wanted[1:] if wanted.startswith("*.") else wanted)
        return address is None and bool(below) and (name == below or name.endswith("." + below))
    return address is not None and address in network


def _address(host: str) -> Optional[_Address]:
    """Return the IP address that a host is, None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _plain(name: str) -> str:
    """Return a host name as names are compared: ASCII, lower case, without dots around it."""
    name = name.strip(".").lower()
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name
