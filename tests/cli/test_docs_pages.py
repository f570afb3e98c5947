"""The pages about the command line document every variable, exit code and flag, and their links work."""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl import errors

ROOT = Path(__file__).parent.parent.parent
INTERNAL = {
    "FLEETCTL_FAILED",  # printed at the end by the agent's start script, not a variable
    "FLEETCTL_COMPLETE",  # set by the scripts of `fleetctl completion` for a single call
    "FLEETCTL_OUT",  # the prefix of the outputs on GitLab
}


def test_every_environment_variable_is_documented() -> None:
    used: set[str] = set()
    for path in [*(ROOT / "fleetctl").rglob("*.py"), *(ROOT / "fleetctl").rglob("*.sh")]:
        used |= set(re.findall(r"FLEETCTL_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert {name for name in used if f"`{name}`" not in page} <= INTERNAL


def test_every_exit_code_of_an_error_is_documented() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    codes = {value.exit_code for value in vars(errors).values()
             if isinstance(value, type) and issubclass(value, errors.FleetctlError)}
    assert [code for code in sorted(codes) if f"\n| {code} | " not in page] == []


def test_every_flag_of_plan_is_on_its_page() -> None:
    source = (ROOT / "fleetctl" / "cli" / "flags.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    flags = set(re.findall(r'"(--[a-z-]+)"', source)) - {
        "--file", "--yes", "--dry-run", "--parallelism", "--lock-timeout", "--wait-timeout",
    }
    assert [flag for flag in sorted(flags) if flag not in page] == []


PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
         ROOT / "AGENTS.md", ROOT / "tests" / "README.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as common renderers generate them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_has_an_existing_target() -> None:
    dead = []
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text(encoding="utf-8"))]
    for page, link in links:
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(f"{page.name}: {link}")
    assert dead == []


def test_every_page_is_in_the_index() -> None:
    linked = set(LINK.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"index.md"}
