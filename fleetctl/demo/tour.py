"""The guided tour (`make demo`): plan, apply, query an engine, plan again and show the status, all by real commands.

Each stop runs a command as a user would: the command writes to the terminal itself. An unexpected exit code ends the
tour.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import FleetctlError

ANSWER_TIMEOUT_S = 30.0
ASKED_MODEL = "Qwen/Qwen3-235B-A22B"
PROMPT = "Hello, fleet."
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The demo's engines are on this machine: no proxy leads to them."""

Say = Callable[[str], None]

MEANING = {0: "fine", 2: "changes present", 3: "partial: what fits is done, the rest has reasons"}


@dataclass(frozen=True, slots=True)
class Stop:
    """One command of the tour. `expect` = its exit code, `stdin` = its input, `piped` = the shell text before it."""

    title: str
    words: str
    arguments: tuple[str, ...]
    expect: int = 0
    piped: str = ""
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Tour:
    """Runs stops. `fleetctl` = the start of each command, `env` = its environment, `say` = writes the narration."""

    fleetctl: Sequence[str]
    env: Mapping[str, str]
    say: Say

    def visit(self, stop: Stop) -> None:
        """Announce the stop, run it, show its exit code; raises FleetctlError for an unexpected one."""
        self.say(f"\n== {stop.title}\n{stop.words}\n")
        self.say(f"$ {stop.piped}fleetctl {shlex.join(stop.arguments)}")
        done = subprocess.run(
            [*self.fleetctl, *stop.arguments], env=dict(self.env), input=stop.stdin, text=True, check=False)
        self.say(f"(exit code {done.returncode}: {MEANING.get(done.returncode, 'not what the tour expects')})")
        if done.returncode != stop.expect:
            raise FleetctlError(f"`fleetctl {shlex.join(stop.arguments)}` ended with exit code {done.returncode}; "
                                f"the tour expects {stop.expect}")

    def ask_engine(self) -> None:
        """Find a ready replica in the inventory and request a completion over HTTP."""
        self.say("\n== Ask an engine\nThe engines are real servers; the inventory has their addresses.\n")
        url = f"http://{self._address_of(ASKED_MODEL)}"
        self.say(f"GET {url}/v1/models")
        listed = _http_json(f"{url}/v1/models", None)
        self.say(f"  {', '.join(model['id'] for model in listed['data'])}")
        self.say(f'POST {url}/v1/completions  {{"prompt": "{PROMPT}"}}')
        answer = _http_json(f"{url}/v1/completions", {"model": ASKED_MODEL, "prompt": PROMPT})
        self.say(f"  {answer['choices'][0]['text']}")

    def _address_of(self, model: str) -> str:
        ended = subprocess.run(
            [*self.fleetctl, "inventory", "--format", "json"],
            env=dict(self.env), capture_output=True, text=True, check=False)
        if ended.returncode:
            raise FleetctlError(f"`fleetctl inventory` ended with exit code {ended.returncode}: {ended.stderr.strip()}")
        for replica in json.loads(ended.stdout)["replicas"]:
            for member in replica["members"]:
                if replica["model"] == model and member.get("port") and member["rank"] == 0:
                    return f"{member['address']}:{member['port']}"
        raise FleetctlError(f"the inventory has no address for {model}")


def stops_before_asking(fleet: str) -> tuple[Stop, ...]:
    """Return the stops up to the first running engine."""
    return (
        Stop("Plan", "What would run where, what does not fit, and why? This writes nothing.", ("plan", "-f", fleet)),
        Stop("Apply", "Run it. What fits is started even though something else does not.",
             ("apply", "-f", fleet, "--yes"), expect=3),
    )


def stops_after_asking(fleet: str, text: str) -> tuple[Stop, ...]:
    """Return the stops after the first running engine; `text` = the content of the fleet file."""
    return (
        Stop("Plan again",
             "All that fits is running, so there is nothing to create; blocked replicas are still reported.",
             ("plan", "-f", fleet)),
        Stop("Ask for less",
             "The file now wants one replica of each model. Nothing is removed: a target is a minimum.",
             ("plan", "-f", "-"), piped=f"sed 's/replicas: 3/replicas: 1/' {shlex.quote(fleet)} | ",
             stdin=text.replace("replicas: 3", "replicas: 1")),
        Stop("Status", "A row per replica.", ("status", "-f", fleet)),
    )


def demo_fleet(near: Path) -> str:
    """Return the path of the demo's fleet file, relative to the folder `near` if it is inside."""
    packaged = Path(__file__).with_name("fleet.yaml")
    path = packaged if packaged.exists() else Path(__file__).parents[2] / "fleets" / "demo.yaml"
    return str(path.relative_to(near) if path.is_relative_to(near) else path)


def _http_json(url: str, body: Mapping[str, str] | None) -> dict[str, list[dict[str, str]]]:
    request = urllib.request.Request(  # noqa: S310  the inventory has just named this address, and it is http
        url, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    try:
        with DIRECTLY.open(request, timeout=ANSWER_TIMEOUT_S) as response:
            answer: dict[str, list[dict[str, str]]] = json.load(response)
            return answer
    except OSError as error:
        raise FleetctlError(f"{url} did not answer: {error}") from error
