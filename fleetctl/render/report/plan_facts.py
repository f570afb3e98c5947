"""What a plan was made of: files, commit, inventory, flags, id, version, expiry."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.plan import GitFacts, Plan, PlanFlags
from fleetctl.render.difference_text import revision_text

COMMIT_SHOWN = 10
FLAGS = {"targets": "--target", "excludes": "--exclude", "adopt_from": "--adopt-from", "force": "--force"}


def plan_facts(plan: Plan, certificate: str) -> tuple[tuple[str, str], ...]:
    """Return the facts that have something to say, each with its name; `certificate` = its sentence, "" = none."""
    facts = {
        "fleet": plan.fleet.name,
        "files": ", ".join(source.path for source in plan.fleet.files),
        "commit": _commit(plan.fleet.git) if plan.fleet.git else "",
        "compared with": revision_text(plan.change.base) if plan.change else "",
        "inventory": f"{plan.inventory.observed_at} from {plan.inventory.source}",
        "namespace": plan.fleet.namespace,
        "options": " ".join(_flags(plan.options)),
        "placement": certificate,
        "plan id": plan.plan_id,
        "expires": plan.expires_at or "",
        "made by": f"fleetctl {plan.tool_version}",
    }
    return tuple((name, text) for name, text in facts.items() if text)


def _commit(git: GitFacts) -> str:
    branch = f" on {git.branch}" if git.branch else ""
    return f"{git.commit[:COMMIT_SHOWN]}{branch}{' with uncommitted changes' if git.dirty else ''}"


def _flags(options: PlanFlags) -> Iterator[str]:
    """Yield the flags that shaped the plan; the files are a fact of their own."""
    for name, flag in FLAGS.items():
        value = getattr(options, name)
        for one in value if isinstance(value, list) else [value]:
            if one:
                yield flag if one is True else f"{flag} {one}"
