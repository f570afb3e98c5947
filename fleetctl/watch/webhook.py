"""News for a webhook, as JSON that Slack and others show: sent beside the loop, which never waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient

MOST_WAITING = 100
LAST_S = 5.0
"""How long the end of a watch waits for what is still to be sent."""


class Webhook:
    """Sends the news in order; `failed` gets a sentence when one is given up, without the address.

    What the receiver did not confirm is sent again, so it may get a piece of news twice.

    The address is a secret: who knows it may write. Raises ForgeError for one that cannot be used.
    """

    def __init__(self, url: str, failed: Callable[[str], None]) -> None:
        if not url.startswith(("http://", "https://")):
            raise ForgeError("the address of the webhook is no URL", hint="such as https://hooks.example.org/services/...")
        self._client = ForgeClient(url, {})
        self._failed = failed
        self._news: queue.Queue[dict[str, object] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send_all, name="webhook", daemon=True)
        self._thread.start()

    def send(self, text: str, more: Mapping[str, object]) -> None:
        """Send news soon; where too much waits already, it is left out. `more` = fields for programs.

        The three signs that Slack reads as markup are escaped: a text may hold names from anywhere.
        """
        plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        try:
            self._news.put_nowait({**more, "text": plain})
        except queue.Full:
            self._failed("too much waits for the webhook; news are left out")

    def close(self) -> None:
        """Send what waits, for some seconds at most."""
        with suppress(queue.Full):
            self._news.put(None, timeout=LAST_S)
            self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._failed("the webhook has not taken all news")

    def _send_all(self) -> None:
        with self._client:
            while (news := self._news.get()) is not None:
                try:
                    self._client.send("POST", "", body=news)
                except ForgeError as error:
                    status = f" ({error.status})" if error.status else ""
                    self._failed(f"the webhook did not take the news{status}")
