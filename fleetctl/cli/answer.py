"""How a question's answer is shown: a table for people, or the document as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fleetctl.cli.console import result_console, write_result
from fleetctl.cli.options import OutputFormat
from fleetctl.documents.base import Stored
from fleetctl.render.answer_json import render_answer_json

if TYPE_CHECKING:
    from rich.console import Console

Answer = TypeVar("Answer", bound=Stored)


def show_answer(answer: Answer, chosen: OutputFormat, table: Callable[[Answer, Console], None]) -> None:
    """Print the answer on standard output."""
    if chosen is OutputFormat.JSON:
        write_result(render_answer_json(answer))
    else:
        table(answer, result_console())
