"""Readers of the formats of `endpoints` that share no code with their writers: which addresses does each file name?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import yaml

Named = list[tuple[str, str]]
"""The name of a model as the program uses it, and one address with port."""

_TOKEN = re.compile(r'\s+|#[^\n]*|([;{}])|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|(?:\\.|[^\s;{}"\'\\])+', re.DOTALL)
NO_SERVER = ["server", "127.0.0.1:1", "down"]


def read_nginx(text: str) -> Named:
    """Return what nginx's own grammar finds: only blocks `upstream`, each once, ignoring case; raises ValueError."""
    found, names, block = list[tuple[str, str]](), set[str](), ""
    for words, end in _statements(text):
        if end == "{":
            if block or len(words) != 2 or words[0] != "upstream" or words[1].lower() in names:
                raise ValueError(f"not a new upstream: {words}")
            block = words[1]
            names.add(block.lower())
        elif end == "}":
            if words or not block:
                raise ValueError(f"an odd end: {words}")
            block = ""
        elif words != NO_SERVER:
            if not block or len(words) != 3 or words[0] != "server" or not re.fullmatch("weight=[0-9]+", words[2]):
                raise ValueError(f"not a server: {words}")
            found.append((block, words[1]))
    return found


def _statements(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words before each `;`, `{` and `}`."""
    words, at = list[str](), 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"no token at {text[at:at + 20]!r}")
        at = match.end()
        if match[1]:
            yield words, match[1]
            words = []
        elif not match[0][0].isspace() and match[0][0] != "#":
            words.append(match[0])
    if words:
        raise ValueError(f"text after the end: {words}")


def read_prometheus(text: str) -> Named:
    """Return the targets with their label `model`; every label has a valid name and is text."""
    found = []
    for group in json.loads(text):
        [target], labels = group["targets"], group["labels"]
        if set(group) != {"targets", "labels"} or not all(
                re.fullmatch("[a-z]+", name) and isinstance(value, str) for name, value in labels.items()):
            raise ValueError(f"odd labels: {labels}")
        found.append((labels["model"], target))
    return found


def read_envoy(text: str) -> Named:
    """Return the addresses of each cluster; clusters are static, and each name stands once."""
    found, names = list[tuple[str, str]](), set[str]()
    for cluster in yaml.safe_load(text)["resources"]:
        load = cluster["load_assignment"]
        if cluster["type"] != "STATIC" or cluster["name"] != load["cluster_name"] or cluster["name"] in names:
            raise ValueError(f"not a new static cluster: {cluster['name']}")
        names.add(cluster["name"])
        for endpoint in load["endpoints"][0]["lb_endpoints"]:
            at = endpoint["endpoint"]["address"]["socket_address"]
            host = f"[{at['address']}]" if ":" in at["address"] else at["address"]
            found.append((cluster["name"], f"{host}:{at['port_value']}"))
    return found


def read_litellm(text: str) -> Named:
    """Return the deployments; each id stands once, and no text has a meaning of LiteLLM's own."""
    found, ids = list[tuple[str, str]](), set[str]()
    for row in yaml.safe_load(text)["model_list"]:
        name, base, row_id = row["model_name"], row["litellm_params"]["api_base"], row["model_info"]["id"]
        if "*" in name or any(word.startswith("os.environ/") for word in (name, base, row_id)) or row_id in ids:
            raise ValueError(f"a deployment with a meaning of its own, or twice: {row}")
        if row["litellm_params"]["model"] != f"openai/{name}":
            raise ValueError(f"another model: {row}")
        ids.add(row_id)
        found.append((name, _host_of(base)))
    return found


def read_vllm_router(text: str) -> Named:
    """Return the pairs of both lists, which are as long as each other."""
    written = json.loads(text)
    urls, names = (written[key].split(",") if written[key] else [] for key in ("static_backends", "static_models"))
    return [(name, _host_of(url)) for name, url in zip(names, urls, strict=True)]


def read_json(text: str) -> Named:
    """Return the endpoints of the document."""
    return [(model["name"], _host_of(one["url"])) for model in json.loads(text)["models"] for one in model["endpoints"]]


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"not the address of an engine: {url}")
    return parts.netloc


READERS: Mapping[str, Callable[[str], Named]] = {
    "json": read_json, "litellm": read_litellm, "prometheus": read_prometheus, "envoy": read_envoy, "nginx": read_nginx,
    "vllm-router": read_vllm_router,
}
