"""News for a webhook, as JSON that Slack and others show, sent in the background: the loop never waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient

MAX_WAITING = 100
LAST_S = 5.0
"""How long the end of a watch waits for unsent news."""


class Webhook:
    """Sends the news in order; `failed` is called with a message, without the address, for each one given up.

    Unconfirmed news is sent again, so the receiver may get it twice. The address is a secret, because anyone who knows
    it may write. Raises ForgeError for an unusable address.
    """

    def __init__(self, url: str, failed: Callable[[str], None]) -> None:
        if not url.startswith(("http://", "https://")):
            raise ForgeError("the address of the webhook is not a URL", hint="such as https://hooks.example.org/...")
        self._client = ForgeClient(url, {})
        self._failed = failed
        self._news: queue.Queue[dict[str, object] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._send_all, name="webhook", daemon=True)
        self._thread.start()

    def send(self, text: str, more: Mapping[str, object]) -> None:
        """Queue news for sending, or drop it if the queue is full. `more` = fields for programs.

        The three characters that Slack reads as markup are escaped: a text may contain arbitrary names.
        """
        plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        try:
            self._news.put_nowait({**more, "text": plain})
        except queue.Full:
            self._failed("the webhook is too slow; some news is dropped")

    def close(self) -> None:
        """Send queued news, for at most some seconds."""
        with suppress(queue.Full):
            self._news.put(None, timeout=LAST_S)
            self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._failed("the webhook has not accepted all news")

    def _send_all(self) -> None:
        with self._client:
            while (news := self._news.get()) is not None:
                try:
                    self._client.send("POST", "", body=news)
                except ForgeError as error:
                    status = f" ({error.status})" if error.status else ""
                    self._failed(f"the webhook did not accept the news{status}{self._client.route.via}")
