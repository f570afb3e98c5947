"""`fleetctl model describe SOURCE`: write what plans know about a model: its size, and what a token takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, working, write_document
from fleetctl.cli.process import this_invocation
from fleetctl.documents.model import Description
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.model_numbers import MOST_BYTES, parse_description
from fleetctl.workflow.output_files import write_file

app = command_app(
    "fleetctl model describe hf:Qwen/Qwen3-8B@main --out models/qwen3-8b.json",
    "fleetctl model describe models/Qwen3-8B",
    exit_codes="0 described, 1 the source is no model or cannot be read, 64 usage")


@app.callback()
def model() -> None:
    """Describe a model, so that plans know what it takes on a card."""


@app.command("describe")
def describe_model(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help=(
        "A folder or a file, http(s)://HOST/FOLDER, hf:OWNER/NAME@REVISION, s3://BUCKET/FOLDER, or in one of them the "
        "index of weights, fleetctl-weights.json."))],
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", dir_okay=False, allow_dash=True,
        help="Write the description to FILE, such as models/NAME.json, instead of standard output.")] = None,
    file: Annotated[str | None, flags.option(
        "--file", metavar="NAME", help="The one of several GGUF files that is meant.")] = None,
) -> int:
    """Describe the model at SOURCE from the headers of its files.

    Its config.json is read, too, and no byte of a tensor. Commit the description beside the fleet file, and name it
    there as `model: {description: models/NAME.json}`: plans then compare what the model takes on a card with the card.
    A token in HF_TOKEN is sent to Hugging Face alone, or to the hub at HF_ENDPOINT.
    """
    out = None if str(out) == "-" else out
    require_description(out)
    described = describe_at(source, file)
    if out is None:
        write_document(text_of(described))
    write_description(described, out)
    return 0


def require_description(out: Path | None) -> None:
    """Raise FleetctlError if a file exists that a description would replace, and is none."""
    if out is not None and out.is_file() and out.stat().st_size:
        try:
            parse_description(str(out), read_whole(out, MOST_BYTES))
        except (ValueError, OSError):
            raise FleetctlError(f"{out} exists, and is not the description of a model", hint="name another file"
                                ) from None


def describe_at(source: str, file: str | None = None) -> Description:
    """Return the description of the model at `source`; raises FleetctlError."""
    from fleetctl.sizing.describe import DescribeError, describe
    from fleetctl.sizing.origins import without_secrets
    from fleetctl.workflow.dashboard import warn_if_readable

    if source.startswith("hf:") and os.environ.get("HF_TOKEN"):
        warn_if_readable(this_invocation(), os.environ.get("HF_ENDPOINT", ""), "the token in HF_TOKEN")
    shown = without_secrets(source)
    doing = [f"reading the headers of {shown}"]

    def progress(read: int, of: int) -> None:
        doing[0] = f"reading the headers of {shown}: {read} of {count_of(of, 'file')}"

    try:
        with working(lambda: doing[0]):
            return describe(source, file=file, variables=os.environ, progress=progress)
    except DescribeError as error:
        raise FleetctlError(str(error)) from None


def text_of(described: Description) -> str:
    """Return a description as its file has it."""
    return json.dumps(described.as_json(), indent=2, ensure_ascii=False) + "\n"


def write_description(described: Description, out: Path | None) -> None:
    """Write a description to `out`, if there is one, and say what it has."""
    if out is not None:
        write_file(out, text_of(described), mode=0o644, make_folder=True)
    say("described", *_summary(described))
    say("not known", *_unknown(described))
    if out is not None:
        here, name = ("beside it", out.name) if out.is_absolute() or ".." in out.parts else ("in this folder", out)
        say("written", f"{out}; a fleet file {here} names it as model: {{description: {name}}}")


def _summary(described: Description) -> Iterator[str]:
    from fleetctl.sizing.engine_line import EngineLine
    from fleetctl.sizing.kv_cache import kinds, state_bytes, token_bytes

    line, counts = EngineLine("vllm"), kinds(described.layers)
    caches = {kind: counts[kind] for kind in ("full", "sliding", "chunked") if counts[kind]}
    token, state = token_bytes(described, line) * sum(caches.values()), state_bytes(described, line) * counts["state"]
    amount = described.parameters
    count = next((f"{amount / size:.4g} {name}" for size, name in ((10 ** 9, "billion"), (10 ** 6, "million"))
                  if amount >= size), f"{amount:,}")
    quantized = f", quantized ({described.quantization})" if described.quantization else ""
    yield (f"{described.source}, {described.architecture}: {count} parameters, {format_bytes(described.bytes)} in "
           f"{', '.join(described.types)}{quantized}")
    latent = "latent " if described.latent else ""
    attention = [f"{count} with {latent}{kind} attention" for kind, count in caches.items()]
    states = [f"{counts['state']} with a state"] if counts["state"] else []
    experts = [f"{described.experts} experts"] if described.experts else []
    takes = [*([f"a token of context takes {format_bytes(int(token))} of cache"] if token else []),
             *([f"a sequence {format_bytes(state)} of state"] if state else []),
             *([f"a request has at most {described.positions:,} tokens"] if described.positions else [])]
    layers = count_of(sum(run.count for run in described.layers), "layer")
    yield f"{layers} ({', '.join([*attention, *states, *experts])}); {', '.join(takes)}"


def _unknown(described: Description) -> Iterator[str]:
    if not described.attention_known:
        yield "the kinds of attention: no plan blocks it because of its context"
    if not described.positions:
        yield "its longest context: plans compare its weights alone, unless the engine's flags set a length"
    if described.quantization == "unknown":
        yield "the method of its quantization"
