"""Rules over one model: its variants; size, placement and settings without effect; its groups; its weights and updates.
Then rules over all documents of one run: one fleet name, unique model keys, no setting twice, at least one model.

Counterparts of Modelplane's admission rules: group shape (11), a claim in every group (12), count only on Workers (13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import get_args

from pydantic_core import PydanticCustomError

from fleetctl.documents.base import MOST_OF_SERVED_NAME, is_model_key
from fleetctl.documents.engine import Probe
from fleetctl.documents.fleet import MAX_PROTECTED, MAX_QUOTAS, Member, Resources, Role, matches_pattern
from fleetctl.documents.names import nearest
from fleetctl.documents.position import Path
from fleetctl.documents.quantity import (
    SHARE,
    amount_of,
    count_of,
    format_share,
    parse_bytes,
    parse_duration,
    parse_gpus,
    some,
)
from fleetctl.documents.selector import ACCELERATOR_LABEL, NODE_ID_LABEL, matches, parse_requirement
from fleetctl.documents.weights import regex_error
from fleetctl.fleetfile.command_line import (
    INJECTED,
    all_references,
    cards_by_flags,
    check_references,
    fixed_port,
    references,
)
from fleetctl.fleetfile.guess import served_name_meant
from fleetctl.fleetfile.keys import keys_of
from fleetctl.fleetfile.nodes import Document, Raw, Value, alternatives, models, repeated, root, shapes_of
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.validate import cut
from fleetctl.problem import Problem

FEW_BYTES = 1 << 20
"""An amount below it is a warning: a number without a unit is bytes, and GiB were probably meant."""
MAX_MEMBERS_PER_REPLICA = 256
"""A replica's actor carries all its planned members, about 240 bytes each, in one environment variable, and Linux
limits it to 128 KiB."""
_RESOURCES = frozenset(keys_of(Resources))
KNOWN = ("FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK",
         "FLEETCTL_GROUP_SIZE", "FLEETCTL_RANKS")
"""The variables known to a plan; the others are only known when the engine starts, after its weights are fetched."""
KNOWN_AT_UPDATE = ("FLEETCTL_NEW_MODEL_DIR", *INJECTED)
MAX_REGEX_COST = 50_000
_BEYOND_ASCII = re.compile(r"\\[uUN]")
_SHAPES: Path = ("spec", "shapes")
OVER_LIMITS = "FL095"
IN_PLACE, BEFORE_WEIGHTS = "inPlace", "known before the weights are fetched"


def check_model(model: Raw) -> Iterator[Problem]:
    """Yield the problems of one model, or shape, beyond the types of its values."""
    ways = alternatives(model)
    if model.get("variants") is not None:
        yield from _variants(model)
    for way in ways:
        yield from _check_way(model, way)
    groups = [group for way in ways for group in way.items("workers")]
    yield from _serving(model, ways)
    if model.get("cold") is not None and groups and not any(
            member.get("weights") for group in groups for member in group.items("members")):
        yield model.problem("FL083", "no member of this model has weights, so there is nothing to keep on disk",
                            key="cold", on_key=True)
    yield from _without_effect(model, groups)


def _check_way(model: Raw, way: Raw) -> Iterator[Problem]:
    """Yield the problems of one way to run a model: of its groups, and of them together."""
    groups = list(way.items("workers"))
    in_variant = way.path != model.path or model.path[:-1] == _SHAPES  # a shape may be that of a variant
    for first, group in repeated(groups, "name"):
        message = f'duplicate group name "{group.text("name")}"; the first is at {first.at("name")}'
        yield group.problem("FL041", message, key="name")
    for group in groups:
        yield from check_group(group)
        for member in group.items("members"):
            yield from check_references(member, in_variant=in_variant)
            if member.get("weights") is not None:
                yield from check_weights(group, member)
            resources, engine = member.child("resources"), member.child("engine")
            for key in ("vram", "memory"):
                written = resources.get(key) or 0
                with suppress(PydanticCustomError):  # an invalid quantity is a problem of its own
                    if 0 < (count := parse_bytes(written)) < FEW_BYTES:
                        yield resources.problem("FL069", f"{key} is only {count_of(count, 'byte')}", key=key,
                                                suggestion=f"{written}Gi" if str(written).isdigit() else None)
            if role_of(member) == "Worker" and engine.get("readiness") is not None:
                yield engine.problem("FL060", "a Worker's readiness is never used: a gang is ready when its Leader is",
                                     key="readiness", on_key=True)
            yield from _fixed_ports(model, group, engine)
        yield from check_cards((way, model), group)
    members = sum(whole(group.get("copies")) * members_per_copy(group) for group in groups)
    if members > MAX_MEMBERS_PER_REPLICA:
        yield way.problem("FL054", f"one replica would have {members} members", key="workers", on_key=True,
                          allowed=f"at most {MAX_MEMBERS_PER_REPLICA}")
    if way is not model:
        yield from _without_effect(way, groups)
    yield from _on_one_node((way, model), groups)


def _variants(model: Raw) -> Iterator[Problem]:
    """Yield the problems between the variants of a model, and between them and the model."""
    variants = list(model.items("variants"))
    for kind in ("workers", "shape"):
        if kind in model.value:
            what = "a shape" if kind == "shape" else kind
            yield model.problem("FL094", f"a model has either variants or {what}, not both", key=kind, on_key=True,
                                allowed=f"{kind} in each variant")
    for first, variant in repeated(variants, "name"):
        message = f'duplicate variant name "{variant.text("name")}"; the first is at {first.at("name")}'
        yield variant.problem("FL093", message, key="name")
    for variant in variants:
        least, most = (_number(variant.get(key)) for key in ("min", "max"))
        if least is not None and most is not None and least > most:
            yield variant.problem(OVER_LIMITS, f"min is {least}, but max allows only {most}", key="min",
                                  allowed=f"at most {most}, or a larger max")
    limits = [_number(variant.get("max")) for variant in variants]
    together, replicas = sum(most or 0 for most in limits), _number(model.get("replicas"))
    if variants and None not in limits and replicas is not None and together < replicas:
        yield model.problem(OVER_LIMITS, f"replicas is {replicas}, but the variants allow only {together} together",
                            key="replicas", allowed=f"at most {together}, a larger max, or a variant without max")


def _number(value: Value) -> int | None:
    """Return a number of replicas; None if it is absent or invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def check_minimums(documents: Sequence[Document], fleet: ResolvedFleet) -> Iterator[Problem]:
    """Yield the quotas of a valid fleet below what the minimums of variants ask for: these are never all met."""
    policies = (root(document).child("spec").child("policy") for document in documents)
    views = next((list(policy.items("quotas")) for policy in policies if policy.value), [])
    for view, quota in zip(views, fleet.policy.quotas, strict=True):
        asking = [model for model in fleet.models if matches(quota.selector, model.labels)
                  and any(one.least for one in model.variants)]
        ways = [one for model in asking for one in model.variants]
        least, gpus = sum(one.least for one in ways), sum(one.least * one.gpus for one in ways)
        names = some([model.key for model in asking])
        if quota.replicas is not None and least > quota.replicas:
            message = (f"the variants of {names} have a min of {count_of(least, 'replica')} in all, and this quota "
                       f"allows {quota.replicas}")
            yield view.problem("FL076", message, key="replicas")
        if quota.gpus is not None and gpus > quota.gpus:
            message = (f"the variants of {names} have a min of {amount_of(gpus, 'GPU')} in all, and this quota allows "
                       f"{format_share(quota.gpus)}")
            yield view.problem("FL076", message, key="gpus")


def check_alike(documents: Sequence[Document], fleet: ResolvedFleet) -> Iterator[Problem]:
    """Yield the variants of a valid fleet that nobody could tell apart, or count over one label."""
    for view, model in zip((view for document in documents for view in models(document)), fleet.models, strict=True):
        variants, hashes = list(view.items("variants")), [one.spec_hash for one in model.variants]
        for place, spec_hash in enumerate(hashes):
            first = hashes.index(spec_hash)
            if first < place:
                message = f'this variant has the workers and the placement of "{model.variants[first].variant}"'
                yield variants[place].problem("FL096", message, key="name",
                                              allowed="one of the two, or a difference between them")
        spreads = [one.placement.spread_label for one in model.variants]
        label, first = next(((label, place) for place, label in enumerate(spreads) if label), ("", 0))
        for variant, other in zip(variants, spreads, strict=True):
            if other not in (None, label):
                own = variant.child("placement")
                message = (f'variant "{variant.text("name")}" is spread over {other}, but '
                           f'"{model.variants[first].variant}" over {label}: all replicas of a model are counted over '
                           "one label")
                yield (own.problem("FL097", message, key="spread", on_key=True, allowed=label)
                       if own.get("spread") is not None else
                       variant.problem("FL097", message, key="name", allowed=f"placement.spread over {label}"))


def _serving(model: Raw, ways: Sequence[Raw]) -> Iterator[Problem]:
    serving, key = model.child("serving"), model.text("key")
    if key and (len(key) > MOST_OF_SERVED_NAME or "," in key) and is_model_key(key) and serving.get("name") is None:
        yield model.problem("FL073", "clients cannot request it: its key has a comma or more than "
                                     f"{MOST_OF_SERVED_NAME} characters, and it has no serving.name", key="key",
                            suggestion=(name := served_name_meant(key)) and f"serving.name: {name}")
    for way in ways:
        names = [name for group in way.items("workers") if (name := group.text("name"))]
        who = "this model" if way is model else f'variant "{cut(way.text("name") or "")}"'
        for _, name in serving.texts("groups"):
            if name not in names:
                yield serving.problem("FL059", f'{who} has no group "{name}"', key="groups",
                                      allowed=", ".join(names), suggestion=nearest(name, names))


def _without_effect(owner: Raw, groups: list[Raw]) -> Iterator[Problem]:
    """Yield the settings in the placement of a model or variant that none of its groups needs."""
    placement = owner.child("placement")
    gangs = [group for group in groups if is_gang(group)]
    bound = placement.child("sameLabel")
    several = sum(whole(group.get("copies")) for group in groups) > 1
    as_one = several and bound.text("scope") == "replica"
    if groups and not gangs:
        for key in ("ranksPerNode",) if as_one else ("sameLabel", "ranksPerNode"):
            if placement.get(key) is not None:
                allowed = "sameLabel with scope: replica, to keep all groups together"
                yield placement.problem("FL061", f"{key} has no effect: no group here is a gang", key=key,
                                        on_key=True, allowed=allowed if several and key == "sameLabel" else None)


def _on_one_node(owners: Sequence[Raw], groups: list[Raw]) -> Iterator[Problem]:
    """Yield the problem of a gang that must be on one node, and may not. The placement of a former owner wins."""
    placements = [owner.child("placement") for owner in owners]
    placement = next((own for own in placements if own.get("sameLabel") is not None), placements[0])
    if (placement.text("sameLabel") or placement.child("sameLabel").text("label")) == NODE_ID_LABEL:
        limit = whole(next((limit for own in placements if (limit := own.get("ranksPerNode")) is not None), None))
        size = max((members_per_copy(group) for group in groups if is_gang(group)), default=0)
        if size > limit:
            yield placement.problem(
                "FL053", f"a gang of {size} must be on one node, but ranksPerNode allows only {limit} of its ranks "
                         "there", key="sameLabel", allowed=f"ranksPerNode: {size}, or another label")


def _fixed_ports(model: Raw, group: Raw, engine: Raw) -> Iterator[Problem]:
    """Warn about a port that is the same for every replica, in a probe or else a flag: replicas may share a node."""
    if max(whole(model.get("replicas")), whole(group.get("copies"))) < 2:
        return
    probes = [engine.child(kind).child(way) for kind in ("readiness", "liveness") for way in Probe.KINDS]
    ports = [(port, (*probe.path, "port")) for probe in probes
             if isinstance(port := probe.get("port"), int) and 0 < port < 65536]
    flag = fixed_port(engine)
    for port, path in ports or ([flag] if flag else []):
        yield engine.document.problem(
            "FL065", path, f"port {port} is fixed, so a second replica on the same node fails",
            allowed="$(FLEETCTL_PORT) for the engine and no port in the probe, or one replica per node "
                    "(maxReplicasPerModel: 1)")


def role_of(member: Raw) -> Value:
    """Return the role as written; absent = Standalone."""
    return member.get("role") if "role" in member.value else "Standalone"


def is_gang(group: Raw) -> bool:
    """Return whether the group is a gang, valid or not: a member is a Leader or a Worker."""
    return any(role_of(member) in ("Leader", "Worker") for member in group.items("members"))


def check_group(group: Raw) -> Iterator[Problem]:
    """Yield the problems between the members of one group."""
    members = list(group.items("members"))
    if not members:
        return
    for member in members:
        if "count" in member.value and (role := role_of(member)) in ("Standalone", "Leader"):
            allowed = "copies of the group, for more Standalone members" if role == "Standalone" else None
            yield member.problem("FL042", f"count is only for a Worker, and this member is a {role}", key="count",
                                 on_key=True, allowed=allowed)
    if all(role_of(member) in get_args(Role) for member in members):
        yield from _shape(members)
    if not any(_claims_something(member) for member in members):
        yield group.problem("FL047", "no member of this group claims gpus, vram or cpus", key="name", on_key=True,
                            allowed="a claim in the resources of at least one member")


def _shape(members: list[Raw]) -> Iterator[Problem]:
    standalone, leaders, workers = (
        [member for member in members if role_of(member) == role] for role in ("Standalone", "Leader", "Worker"))
    if standalone and len(members) > 1:
        gang = bool(leaders or workers)
        allowed = "one Leader and its Workers, or one Standalone" if gang else "copies of the group, to have several"
        for member in standalone[0 if gang else 1:]:
            implied = "role" not in member.value
            message = "a Standalone member must be alone in its group"
            yield member.problem("FL043", message + (" (no role means Standalone)" if implied else ""),
                                 key=None if implied else "role", allowed=allowed)
    yield from (member.problem("FL046", f"a second Leader; the first is at {leaders[0].at('role')}", key="role")
                for member in leaders[1:])
    if workers and not leaders and not standalone:
        yield workers[0].problem("FL044", "this group has Workers but no Leader", key="role",
                                 allowed="one Leader and its Workers, or one Standalone")
    if leaders and not workers and not standalone:
        yield leaders[0].problem("FL045", "this group has a Leader but no Workers", key="role",
                                 allowed="a Leader with at least one Worker, or one Standalone")


def _claims_something(member: Raw) -> bool:
    resources = member.value.get("resources", {})
    if not isinstance(resources, dict) or not {*member.value} <= {*keys_of(Member)} or not {*resources} <= _RESOURCES:
        return True  # reported elsewhere; a second problem would be noise
    try:
        return any(Decimal(str(resources.get(claim, 0))) != 0 for claim in ("gpus", "vram", "cpus"))
    except InvalidOperation:
        return True


def members_per_copy(group: Raw) -> int:
    """Return the number of members in one copy of the group; an invalid count counts as 1."""
    return sum(whole(member.get("count")) for member in group.items("members"))


def whole(value: Value) -> int:
    """Return a count, or 1 if it is absent or invalid."""
    return value if isinstance(value, int) and value > 0 else 1


def check_cards(owners: Sequence[Raw], group: Raw) -> Iterator[Problem]:
    """Yield the warnings about the cards of one group of a model, or of a variant and its model, the `owners`.

    None if a claim is invalid, which is reported elsewhere.
    """
    members = list(group.items("members"))
    try:
        cards = [_cards(member) for member in members]
    except ValueError:
        return
    if any(set(member.child("resources").value) - set(Resources.model_fields) for member in members):
        return  # the misspelled key may be the one that claims the cards
    total = sum(number * whole(member.get("count")) for number, member in zip(cards, members, strict=True))
    for own, member in zip(cards, members, strict=True):
        found = cards_by_flags(member.child("engine"), members_per_copy(group)) if total else None
        if found is not None:
            wanted, _, multiplied, path = found
            if wanted > total or (wanted not in (own, total) and not multiplied):
                claimed = f"the gang claims {total}" if is_gang(group) else f"this member claims {total}"
                yield group.document.problem(
                    "FL066", path, f"the flags divide the model over {count_of(wanted, 'GPU')}, but {claimed}",
                    allowed="the same number in the flags and in resources.gpus, summed over the members")
        if own and is_gang(group):
            yield from _mixed(owners, member)


def _cards(member: Raw) -> int:
    """Return the number of cards of which a member claims at least a share; raises ValueError."""
    resources = member.child("resources")
    share = parse_gpus(resources.get("gpus") or 0)
    return -(-share // SHARE) or (1 if resources.get("vram") else 0)


def _mixed(owners: Sequence[Raw], member: Raw) -> Iterator[Problem]:
    selector = member.child("nodeSelector")
    try:
        wanted = parse_requirement(selector.text(ACCELERATOR_LABEL) or "any")
    except ValueError:
        return
    defaults = root(member.document).child("spec").child("defaults")
    same_label = any(owner.child("placement").get("sameLabel") for owner in (*owners, defaults))
    if len(wanted.values) > 1 and not wanted.negated and not same_label:
        yield selector.problem(
            "FL067", f"a gang may get cards of different types: {', '.join(sorted(wanted.values))}",
            key=ACCELERATOR_LABEL, allowed=f"one type, or placement: {{sameLabel: {ACCELERATOR_LABEL}}}")


def check_weights(group: Raw, member: Raw) -> Iterator[Problem]:
    """Yield the problems of one member's weights beyond the types of its values."""
    weights = member.child("weights")
    for path, text in texts_below((*weights.path, "from"), weights.get("from")):
        yield from _unknown(weights, path, references(text), KNOWN, BEFORE_WEIGHTS)
    for path, text in texts_below((*weights.path, "view"), weights.get("view")):
        yield from _unknown(weights, path, all_references(text), KNOWN, BEFORE_WEIGHTS)
        if "$(FLEETCTL_RANK" in text:
            yield from _by_rank(group, member, path, text)
    parts, size = weights.child("view").child("shard").get("of"), members_per_copy(group)
    if isinstance(parts, int) and not isinstance(parts, bool) and 0 < parts != size:
        yield weights.child("view").child("shard").problem(
            "FL082", f"{count_of(parts, 'part')} for a group of {count_of(size, 'member')}", key="of",
            allowed=f"{size}, or no key: the default is the number of members")


def _by_rank(group: Raw, member: Raw, path: Path, text: str) -> Iterator[Problem]:
    """Yield the problem of a view by rank, if an engine with several cards does not count its ranks like the view."""
    members, size = list(group.items("members")), members_per_copy(group)
    try:
        own, claimed = _cards(member), [_cards(other) for other in members]
    except ValueError:  # reported elsewhere
        return
    ranks = sum(max(1, cards) * whole(other.get("count")) for cards, other in zip(claimed, members, strict=True))
    # a Worker's command may only join the Leader, without its flags
    engines = (other.child("engine") for other in (member, *(other for other in members if role_of(other) == "Leader")))
    tensor = next((found[1] for other in engines if (found := cards_by_flags(other, size)) and found[1]), None)
    names = set(all_references(text))
    if "FLEETCTL_RANKS" in names and not all(claimed):
        yield group.document.problem(
            "FL084", path, "$(FLEETCTL_RANKS) counts a rank for each GPU, and a member of this group has none",
            allowed="gpus in every member of the group; or names of files without $(FLEETCTL_RANKS)")
    elif "FLEETCTL_RANKS" in names and (tensor or 1) != ranks:  # without a flag engines divide nothing
        divided = (f"the flags divide each tensor over {count_of(tensor, 'GPU')}" if tensor else
                   "no flag says over how many GPUs the engine divides each tensor")
        yield group.document.problem(
            "FL084", path, f"$(FLEETCTL_RANKS) counts a rank for each GPU, {ranks} in this group, but {divided}",
            allowed=f"a tensor parallel size of {ranks} in the flags, such as --tensor-parallel-size={ranks}; or names "
                    "of files without $(FLEETCTL_RANKS)")
    elif "FLEETCTL_RANK" in names and path[-1] == "files" and own > 1 and (tensor != own or size == 1):
        meant = text.replace("$(FLEETCTL_RANK)", "$(FLEETCTL_RANKS)")
        yield group.document.problem(
            "FL074", path, f"$(FLEETCTL_RANK) is one number, but this member has {own} GPUs, and most engines count a "
                           "rank for each",
            allowed=None if tensor == ranks else f"{meant}, with a tensor parallel size of {ranks} in the flags",
            suggestion=meant if tensor == ranks else None)


def check_regexes(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the texts in views that are not regular expressions. Each is compiled once, as long as all cost little."""
    errors: dict[str, str | None] = {}
    left = MAX_REGEX_COST
    for view in (member.child("weights").child("view") for document in documents
                 for model in (*models(document), *shapes_of(document)) for way in alternatives(model)
                 for group in way.items("workers") for member in group.items("members")):
        for owner, key in ((view, "tensors"), *((rule, "match") for rule in view.child("shard").items("rules"))):
            text = owner.text(key)
            if text is None:
                continue
            if text not in errors:
                # sets beyond ASCII are compiled character by character
                left -= len(text) * (1 if text.isascii() and not _BEYOND_ASCII.search(text) else 30)
                if left < 0:
                    yield owner.problem("FL081", "the regular expressions of this fleet take too long to read", key=key,
                                        allowed=f"at most {MAX_REGEX_COST} characters in all, of ASCII")
                    return
                errors[text] = regex_error(text)
            if error := errors[text]:
                shown = "".join(char if char.isprintable() else "?" for char in cut(text))
                yield owner.problem("FL081", f'"{shown}" is not a regular expression: {error}', key=key,
                                    allowed="Python's syntax; it is searched for in tensor names")


def _unknown(owner: Raw, path: Path, names: Iterable[str], known: Sequence[str], how: str) -> Iterator[Problem]:
    for name in names:
        if name not in known:
            meant = nearest(name, known)
            yield owner.document.problem("FL048", path, f"$({name}) is not {how}", allowed=", ".join(known),
                                         suggestion=f"$({meant})" if meant else None)


def texts_below(path: Path, value: Value) -> Iterator[tuple[Path, str]]:
    """Yield all texts in a value of any type, each with its path."""
    if isinstance(value, str):
        yield path, value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield from texts_below((*path, key), below)


def check_updates(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the problems of `update`, in the defaults and in the models, which inherit from the defaults."""
    defaults = [root(document).child("spec").child("defaults").child("update") for document in documents]
    given = any(update.get("reload") for update in defaults)
    for update in (update for update in defaults if update.value):
        yield from _reload(update, None, given=given)
    for model in (model for document in documents for model in models(document) if model.child("update").value):
        update = model.child("update")
        for way in alternatives(model):
            yield from _reload(update, way.get("workers"), given=given)
            leaders = [member for group in way.items("workers") for member in group.items("members")
                       if role_of(member) != "Worker"]
            if update.get("mode") == IN_PLACE and leaders and not any(member.get("weights") for member in leaders):
                of = "" if way is model else f' of variant "{cut(way.text("name") or "")}"'
                yield update.problem("FL086", f"inPlace needs weights, and no member of rank 0{of} has any", key="mode",
                                     allowed="weights in a member of rank 0, or mode keep or surge")


def _reload(update: Raw, workers: Value, *, given: bool) -> Iterator[Problem]:
    """Yield the problems of a `reload`; vLLM's prefix cache holds answers of the former weights, if it has one."""
    if update.get("mode") == IN_PLACE and not update.get("reload") and not given:
        yield update.problem("FL085", "inPlace needs the request that makes an engine reload its weights", key="mode",
                             allowed="reload: {http: {path, method, body}}, or a list of them, beside mode")
    texts = [text for _, text in texts_below((), update.get("reload"))]
    if "reload_weights" in texts and not any(text.startswith("/reset_prefix_cache") for text in texts) and not any(
            text == "--no-enable-prefix-caching" for _, text in texts_below((), workers)):
        yield update.problem("FL078", "vLLM keeps its prefix cache, so prompts with a known prefix are answered from "
                                      "the former weights", key="reload",
                             allowed="a list of requests with {http: {path: /reset_prefix_cache}} after the one that "
                                     "loads the weights")
    for path, text in texts_below((*update.path, "reload"), update.get("reload")):
        yield from _unknown(update, path, references(text), KNOWN_AT_UPDATE, "set by fleetctl")


_ONCE = {"cluster": "FL050", "defaults": "FL051", "policy": "FL057", "history": "FL088"}


def check_fleet(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the conflicts between documents; each names both places."""
    views = [root(document) for document in documents]
    named = [metadata for view in views if (metadata := view.child("metadata")).text("name") is not None]
    for metadata in named[1:]:
        if (name := metadata.text("name")) != (other := named[0].text("name")):
            yield metadata.problem("FL049", f'the fleet is "{name}" here and "{other}" at {named[0].at("name")}',
                                   key="name", allowed="the same fleet name in all files of a run")
    specs = [view.child("spec") for view in views]
    for key, code in _ONCE.items():
        having = [spec for spec in specs if spec.get(key) is not None]
        for spec in having[1:]:
            yield spec.problem(code, f"spec.{key} is already set at {having[0].at(key)}", key=key, on_key=True)
    for spec in specs:
        for first, kind in repeated(spec.child("cluster").items("grow"), "name"):
            message = f'duplicate node type "{kind.text("name")}"; the first is at {first.at("name")}'
            yield kind.problem("FL058", message, key="name")
    for first, model in repeated((model for document in documents for model in models(document)), "key"):
        message = f'duplicate model key "{model.text("key")}"; the first is at {first.at("key")}'
        yield model.problem("FL040", message, key="key")
    yield from check_regexes(documents)


def check_whole(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the problems that can only be found if every file could be read."""
    lists = all(isinstance(root(document).child("spec").get("models") or [], list) for document in documents)
    if documents and lists and not any(True for document in documents for _ in models(document)):
        # an empty fleet is never assumed
        yield root(documents[0]).child("spec").problem("FL052", "this fleet has no models", on_key=True,
                                                       allowed="at least one model, which may have replicas: 0")
    yield from check_updates(documents)
    policies = (root(document).child("spec").child("policy") for document in documents)
    policy = next((policy for policy in policies if policy.value), None)  # a second one is a problem of its own
    if policy is not None:
        yield from _protected_models(policy, documents)
        yield from _unmatched_quotas(policy, documents)
        yield from _cooldown(policy.child("cooldown"))


def _protected_models(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    keys = [key for document in documents for model in models(document) if (key := model.text("key")) is not None]
    known = set(keys)
    for path, pattern in islice(policy.texts("protectedModels"), MAX_PROTECTED):
        if pattern not in known and not any(matches_pattern(pattern, key) for key in keys if "*" in pattern):
            yield policy.document.problem("FL064", path, f'"{pattern}" matches no model of this fleet',
                                          suggestion=None if "*" in pattern else nearest(pattern, keys))


def _unmatched_quotas(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    labels = [model.child("labels").value for document in documents for model in models(document)]
    for quota in islice(policy.items("quotas"), MAX_QUOTAS):
        selector = quota.child("selector").value
        with suppress(TypeError, ValueError):  # an invalid selector is a problem of its own
            if not any(matches(selector, own) for own in labels):
                yield quota.problem("FL076", "this quota matches no model of this fleet", key="selector")


def _cooldown(cooldown: Raw) -> Iterator[Problem]:
    with suppress(PydanticCustomError):  # an invalid duration is a problem of its own
        first, longest = parse_duration(cooldown.get("first") or "5m"), parse_duration(cooldown.get("max") or "1h")
        if first > longest:
            yield cooldown.problem("FL079", f"first is longer than max, so every cooldown lasts max: {longest} s",
                                   key="first" if cooldown.get("first") else "max")
