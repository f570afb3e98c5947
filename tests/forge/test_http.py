"""A request to a forge ends within its time, whatever the other side does."""

from __future__ import annotations

import pytest
from dripping_server import dripping

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"


@pytest.mark.parametrize("head", [HEAD + b"X-Slow: ", HEAD + b"\r\n"], ids=["headers", "body"])
def test_an_answer_that_arrives_byte_by_byte_has_a_time_limit(head: bytes) -> None:
    with dripping(head) as (port, given_up), ForgeClient(f"http://127.0.0.1:{port}", {}, try_s=0.5) as client:
        with pytest.raises(ForgeError, match=rf"127\.0\.0\.1:{port} did not answer in full within 0\.5 s"):
            client.send("GET", "/user")
        assert not given_up.is_set()
