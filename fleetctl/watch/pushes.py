"""Pushes: whether a request is a webhook of GitHub, GitLab, Gitea or Forgejo about a push. It only ends a watch's rest.

Nothing of its content is read: the watch fetches the branch itself, from where it always does. So the body goes
through a hash part by part, and is never kept, however long it is.

GitHub, Gitea and Forgejo sign the body (HMAC-SHA256 with the secret). GitLab signs its id and time as well, as Standard
Webhooks (https://www.standardwebhooks.com) has it, or sends the secret itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

MAX_BODY = 25 << 20
"""The most bytes of a body; GitHub sends no more."""
KEPT = 1_000
"""Deliveries that are remembered, so that none counts twice."""
SKEW_S = 300
"""How far the time of a signed delivery may be from ours."""
MOST_SIGNATURES = 8
SOONEST_S = 1.0
"""The least time between two looks, however many pushes come."""
ENCODED = "whsec_"
"""What a secret of Standard Webhooks begins with; its base64 follows."""
_SIGNED = (("X-Hub-Signature-256", "sha256="), ("X-Gitea-Signature", ""), ("X-Forgejo-Signature", ""))
"""Headers with the hexadecimal HMAC of the body, and what stands before it."""

Outcome = Literal["accepted", "replayed", "refused"]


class Headers(Protocol):
    """The headers of a request; names in any case."""

    def get(self, name: str, /) -> Any:  # noqa: ANN401  a text or None; the standard library says Any
        """Return the value of a header, or None."""


@dataclass(slots=True)
class Delivery:
    """One request whose body is still coming. `holds` once it is complete."""

    _digest: hashlib._Hash
    _mac: hmac.HMAC
    _fits: Callable[[bytes], bool]
    """Whether this HMAC of the whole is what the request says."""

    def add(self, part: bytes) -> None:
        """Take a part of the body."""
        self._digest.update(part)
        self._mac.update(part)

    @property
    def holds(self) -> bool:
        """Whether the secret is proven."""
        return self._fits(self._mac.digest())

    @property
    def identity(self) -> bytes:
        """What tells it from other deliveries: a hash of all that is signed."""
        return self._digest.digest()


class Pushes:
    """The pushes that a watch has been told of, and its rest, which they end.

    `secret` = the webhook's, not empty; `now` = the time in seconds since the epoch.
    """

    def __init__(self, secret: bytes, now: Callable[[], float]) -> None:
        self._secret = secret
        self._now = now
        self._lock = threading.Lock()
        self._seen = OrderedDict[bytes, None]()
        self._arrived = threading.Event()
        self._ended_at = float("-inf")
        self.counts: dict[str, int] = {"accepted": 0, "replayed": 0, "refused": 0}

    def begin(self, headers: Headers) -> Delivery | None:
        """Return the delivery with these headers; None = they hold no signature or token that could be right."""
        digest = hashlib.sha256()
        for name, before in _SIGNED:
            if given := headers.get(name):
                return Delivery(digest, self._mac(self._secret), partial(_is_hex, given.removeprefix(before)))
        if given := headers.get("webhook-signature"):
            return self._standard(digest, given, headers)
        if (given := headers.get("X-Gitlab-Token")) and _equal(given, self._secret.decode("latin-1")):
            digest.update((headers.get("X-Gitlab-Event-UUID") or "").encode("latin-1", "replace"))
            return Delivery(digest, self._mac(self._secret), lambda _: True)
        return None

    def _standard(self, digest: hashlib._Hash, given: str, headers: Headers) -> Delivery | None:
        """Return the delivery of Standard Webhooks; None = its time is missing, or too far from ours."""
        about, at = headers.get("webhook-id") or "", headers.get("webhook-timestamp") or ""
        if not at.isascii() or not at.isdigit() or len(at) > 15 or abs(self._now() - int(at)) > SKEW_S:
            return None
        begun = f"{about}.{at}.".encode("latin-1", "replace")
        digest.update(begun)
        mac = self._mac(_signing_key(self._secret))
        mac.update(begun)
        return Delivery(digest, mac, partial(_is_among, given.split()[:MOST_SIGNATURES]))

    def take(self, delivery: Delivery | None) -> Outcome:
        """Count a complete delivery. An accepted one ends the rest; one that came before does not."""
        with self._lock:
            outcome: Outcome = "refused"
            if delivery is not None and delivery.holds:
                outcome = "replayed" if delivery.identity in self._seen else "accepted"
                self._seen[delivery.identity] = None
                self._seen.move_to_end(delivery.identity)
                if len(self._seen) > KEPT:
                    self._seen.popitem(last=False)
            self.counts = {**self.counts, outcome: self.counts[outcome] + 1}  # a new object: /metrics may read the old
        if outcome == "accepted":
            self._arrived.set()
        return outcome

    def wait(self, seconds: float) -> bool:
        """Wait this long, or until a push comes, and return whether one has. Waits never end closer than SOONEST_S."""
        if not self._arrived.wait(seconds):
            return False
        time.sleep(max(0.0, min(seconds, self._ended_at + SOONEST_S - time.monotonic())))
        self._arrived.clear()  # before the look: a push during it leads to another
        self._ended_at = time.monotonic()
        return True

    @staticmethod
    def _mac(key: bytes) -> hmac.HMAC:
        return hmac.new(key, digestmod=hashlib.sha256)


def _signing_key(secret: bytes) -> bytes:
    """Return the key in a secret of Standard Webhooks: `whsec_` and base64; any other secret is the key itself."""
    try:
        is_encoded, token = secret.startswith(ENCODED.encode()), secret.removeprefix(ENCODED.encode())
        return base64.b64decode(token, validate=True) if is_encoded else secret
    except binascii.Error:
        return secret


def _is_hex(given: str, mac: bytes) -> bool:
    return _equal(given, mac.hex())


def _is_among(given: list[str], mac: bytes) -> bool:
    expected = f"v1,{base64.b64encode(mac).decode()}"
    return any(_equal(one, expected) for one in given)


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("latin-1", "replace"), expected.encode("latin-1", "replace"))
