from __future__ import annotations

import re

from fleet_reference import PAGE, refreshed

from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes


def test_the_generated_parts_of_the_page_are_current() -> None:
    page = PAGE.read_text()
    assert refreshed(page) == page, "run `make schemas`"


def test_every_complete_example_on_the_page_is_a_valid_fleet_file() -> None:
    examples = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "apiVersion" in text]
    assert examples
    for example in examples:
        assert inspect_bytes([SourceBytes("example", example.encode())]).problems == ()
