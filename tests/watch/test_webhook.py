"""News over a webhook: each once, in order, again after a failure, and never in the way of the loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from stand_in_server import Answer, Request, serving

from fleetctl.errors import ForgeError
from fleetctl.forge import http
from fleetctl.watch.webhook import MOST_WAITING, Webhook


@dataclass
class Receiver:
    """Takes news, after it has refused some."""

    url: str = ""
    refusals: list[Answer] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        if self.refusals:
            return self.refusals.pop(0)
        self.taken.append(request.body["text"])
        return Answer(200, "ok")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_DELAYS_S", (0.0, 0.0, 0.0))


def sent(receiver: Receiver, *texts: str) -> list[str]:
    """Send texts and return what was said to have failed."""
    failed: list[str] = []
    with serving(receiver):
        webhook = Webhook(f"{receiver.url}/services/a-secret", failed.append)
        for text in texts:
            webhook.send(text, {"about": "blocked"})
        webhook.close()
    return failed


def test_news_arrive_in_order_and_again_after_a_failure() -> None:
    receiver = Receiver(refusals=[Answer(503), Answer(502)])
    assert not sent(receiver, "one", "two", "<!channel> & more")
    assert receiver.taken == ["one", "two", "&lt;!channel&gt; &amp; more"]


def test_what_is_given_up_is_said_without_the_address() -> None:
    receiver = Receiver(refusals=[Answer(404)])
    assert sent(receiver, "one", "two") == ["the webhook did not take the news (404)"]
    assert receiver.taken == ["two"]


def test_more_than_can_wait_is_left_out_at_once() -> None:
    class Stuck(Webhook):
        def _send_all(self) -> None:
            return

    failed: list[str] = []
    webhook = Stuck("http://127.0.0.1:9/services/a-secret", failed.append)
    for number in range(MOST_WAITING + 1):
        webhook.send(str(number), {})
    assert failed == ["too much waits for the webhook; news are left out"]


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ForgeError, match="no URL"):
        Webhook("a-secret", print)
