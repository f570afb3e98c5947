"""Messages to a webhook: sent once each, in order, retried after a failure, and never blocking the loop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from stand_in_server import Answer, Request, serving

from fleetctl.errors import ForgeError
from fleetctl.forge import http
from fleetctl.watch import webhook as webhook_module
from fleetctl.watch.webhook import MAX_WAITING, Webhook


@dataclass
class Receiver:
    """Receives messages after refusing the first ones."""

    url: str = ""
    refusals: list[Answer] = field(default_factory=list)
    received: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        if self.refusals:
            return self.refusals.pop(0)
        self.received.append(request.body["text"])
        return Answer(200, "ok")


@pytest.fixture(autouse=True)
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_DELAYS_S", (0.0, 0.0, 0.0))


def failures_of(receiver: Receiver, *texts: str) -> list[str]:
    """Send texts; return the reported failures."""
    failed: list[str] = []
    with serving(receiver):
        webhook = Webhook(f"{receiver.url}/services/a-secret", failed.append)
        for text in texts:
            webhook.send(text, {"about": "blocked"})
        webhook.close()
    return failed


def test_messages_arrive_in_order_and_are_retried_after_a_failure() -> None:
    receiver = Receiver(refusals=[Answer(503), Answer(502)])
    assert not failures_of(receiver, "one", "two", "<!channel> & more")
    assert receiver.received == ["one", "two", "&lt;!channel&gt; &amp; more"]


def test_a_refused_message_is_reported_without_the_address() -> None:
    receiver = Receiver(refusals=[Answer(404)])
    assert failures_of(receiver, "one", "two") == ["the webhook did not accept the news (404)"]
    assert receiver.received == ["two"]


@pytest.mark.parametrize("refusal", [
    Answer(0), Answer(403, "no", {"Content-Type": "text/plain; charset=base64"}),
    Answer(403, "no", {"Content-Type": "text/plain; charset=idna"}), Answer(429, "", {"Retry-After": "\u00b2"}),
    Answer(429, "", {"X-RateLimit-Reset": "\u00b2", "Date": "Wed, 04 Mar 2026 12:00:00 GMT"})])
def test_a_refusal_does_not_stop_later_messages(refusal: Answer) -> None:
    receiver = Receiver(refusals=[refusal] * 4)
    assert failures_of(receiver, "1", "2", "3", "4", "5")
    assert receiver.received[-1] == "5"


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'a' * 64}.example.org/", "http://127.0.0.1:99999/"])
def test_an_unresolvable_address_is_reported(url: str) -> None:
    failed: list[str] = []
    webhook = Webhook(url, failed.append)
    webhook.send("one", {})
    webhook.close()
    assert failed == ["the webhook did not accept the news"]


def test_messages_beyond_the_queue_are_dropped_at_once() -> None:
    class Stuck(Webhook):
        def _send_all(self) -> None:
            return

    failed: list[str] = []
    webhook = Stuck("http://127.0.0.1:9/services/a-secret", failed.append)
    for number in range(MAX_WAITING + 1):
        webhook.send(str(number), {})
    assert failed == ["the webhook is too slow; some news is dropped"]


def test_unsent_messages_at_the_end_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    released, failed = threading.Event(), list[str]()

    class Slow(Webhook):
        def _send_all(self) -> None:
            released.wait()

    monkeypatch.setattr(webhook_module, "LAST_S", 0.01)
    webhook = Slow("http://127.0.0.1:9/services/a-secret", failed.append)
    webhook.close()
    released.set()
    assert failed == ["the webhook has not accepted all news"]


def test_an_address_that_is_not_a_url_is_refused() -> None:
    with pytest.raises(ForgeError, match="not a URL"):
        Webhook("a-secret", print)
