"""Names of log files: valid in a file system, readable, and unique per member."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.inventory.engine_log import log_name

GROUPS = st.from_regex(r"[a1]([a1-]{0,3}[a1])?", fullmatch=True)
ALIKE = st.from_regex(r"[a1/:_.-]{1,3}", fullmatch=True)  # differ only in characters that a file name cannot have
MEMBERS = st.tuples(
    st.sampled_from(["fleet", "other"]), st.one_of(ALIKE, st.text(min_size=1, max_size=80)), st.integers(0, 2), GROUPS,
    st.integers(0, 2), st.integers(0, 2))
Member = tuple[str, str, int, str, int, int]


@given(MEMBERS, MEMBERS)
def test_every_member_has_its_own_log_name(one: Member, other: Member) -> None:
    """LocalAI W5: two replicas have distinct keys."""
    assert (log_name(*one) == log_name(*other)) == (one == other)


@given(MEMBERS)
def test_a_log_name_is_a_single_file_name(member: Member) -> None:
    name = log_name(*member)
    assert re.fullmatch(r"fleetctl-[A-Za-z0-9][A-Za-z0-9._-]*\.log", name) or name.startswith("fleetctl-_")
    assert len(name) < 160
    assert name == log_name(*member)


def test_a_log_name_is_readable() -> None:
    name = log_name("fleet", "meta-llama/Llama-3.1-8B:turbo", 3, "main", 0, 1)
    assert re.fullmatch(r"fleetctl-meta-llama-Llama-3\.1-8B-turbo-[0-9a-f]{8}-3-main-0-1\.log", name)
