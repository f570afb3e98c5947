"""`fleetctl model describe SOURCE`: write what plans know about a model: its size, and what a token takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, working, write_document
from fleetctl.documents.model import Model
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import FleetctlError

app = command_app(
    "fleetctl model describe hf:Qwen/Qwen3-8B@main --out models/qwen3-8b.json",
    "fleetctl model describe /models/Qwen3-8B",
    exit_codes="0 described, 1 the source is no model or cannot be read, 64 usage")


@app.callback()
def model() -> None:
    """Describe a model as numbers, for plans that know what it takes on a card."""


@app.command("describe")
def describe_model(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help=(
        "A folder or a file, http(s)://HOST/FOLDER, hf:OWNER/NAME@REVISION, or s3://BUCKET/FOLDER."))],
    out: Annotated[Path | None, typer.Option(
        "--out", "-o", metavar="FILE", help="Write the description to FILE, such as models/NAME.json.")] = None,
    file: Annotated[str | None, typer.Option(
        "--file", metavar="NAME", help="The one of several GGUF files that is meant.")] = None,
) -> int:
    """Describe the model at SOURCE, from its config.json and the headers of its files.

    No byte of a tensor is read. Commit the description beside the fleet file, and name it there as `model:
    {description: models/NAME.json}`: plans then compare what the model takes on a card with the card. A token in
    HF_TOKEN is sent to Hugging Face alone.
    """
    from fleetctl.sizing.describe import DescribeError, describe
    from fleetctl.workflow.output_files import write_file

    try:
        with working(f"reading the headers of {source}"):
            described = describe(source, file=file, variables=os.environ)
    except DescribeError as error:
        raise FleetctlError(str(error)) from None
    text = json.dumps(described.as_json(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        write_document(text)
    else:
        write_file(out, text, mode=0o644, make_folder=True)
    say("described", _summary(described), *([f"written to {out}"] if out else []))
    return 0


def _summary(described: Model) -> str:
    from fleetctl.sizing.engine_line import EngineLine
    from fleetctl.sizing.kv_cache import kinds, state_bytes, token_bytes

    line, counts = EngineLine("vllm"), kinds(described.layers)
    token = int(token_bytes(described, line) * sum(counts[kind] for kind in ("full", "sliding", "chunked")))
    state = state_bytes(described, line) * counts["state"]
    parts = [f"{described.parameters / 1e9:.1f} billion parameters", f"{format_bytes(described.bytes)} stored",
             count_of(sum(run.count for run in described.layers), "layer"),
             f"{format_bytes(token)} of cache for each token of context",
             *([f"{format_bytes(state)} of state for each sequence"] if state else []),
             *([f"quantized: {described.quantization}"] if described.quantization else [])]
    return f"{described.source}: {', '.join(parts)}"
