"""Names of log files: fit for a file system, readable, and never shared by two members."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.apply.log_name import log_name

GROUPS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
MEMBERS = st.tuples(
    st.sampled_from(["fleet", "other"]), st.one_of(st.text(min_size=1, max_size=80), st.from_regex(r"[a/:_.-]{1,4}", fullmatch=True)),
    st.integers(0, 120), GROUPS, st.integers(0, 12), st.integers(0, 12))
Member = tuple[str, str, int, str, int, int]


@given(MEMBERS, MEMBERS)
def test_no_two_members_share_a_log(one: Member, other: Member) -> None:
    assert (log_name(*one) == log_name(*other)) == (one == other)


@given(MEMBERS)
def test_a_name_is_one_plain_file(member: Member) -> None:
    name = log_name(*member)
    assert re.fullmatch(r"fleetctl-[A-Za-z0-9][A-Za-z0-9._-]*\.log", name) or name.startswith("fleetctl-_")
    assert len(name) < 160
    assert name == log_name(*member)


def test_a_person_can_read_it() -> None:
    name = log_name("fleet", "meta-llama/Llama-3.1-8B:turbo", 3, "main", 0, 1)
    assert re.fullmatch(r"fleetctl-meta-llama-Llama-3\.1-8B-turbo-[0-9a-f]{8}-3-main-0-1\.log", name)
