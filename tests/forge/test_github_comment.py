"""The comment on a pull request: one per fleet, only our own, updated in place."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from github_stand_in import JOB_TOKEN, PERSON_TOKEN, READ_ONLY_TOKEN, GitHubStandIn, github
from stand_in_server import Answer

from fleetctl.errors import ForgeError
from fleetctl.forge import http
from fleetctl.forge.forges import ChangeRequest, GitHub
from fleetctl.forge.sticky import Posted

MARKER = "<!-- fleetctl:plan:lab -->"
BOT = "github-actions[bot]"


@pytest.fixture
def hub() -> Iterator[GitHubStandIn]:
    with github() as stand_in:
        yield stand_in


class Waits(list[float]):
    """Records the waits instead of waiting."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def post(hub: GitHubStandIn, text: str, token: str = JOB_TOKEN, *, waits: Waits | None = None, **change: Any) -> Posted:
    sleep = Waits() if waits is None else waits
    forge = GitHub(hub.environment(token), ChangeRequest(7, "#7", **change), sleep=sleep)
    return forge.comment(f"{MARKER}\n{text}\n")


def test_the_first_run_creates_and_the_second_updates_in_place(hub: GitHubStandIn) -> None:
    first, second = post(hub, "one"), post(hub, "two")
    assert (first.created, second.created, first.url) == (True, False, second.url)
    assert hub.of(BOT) == [f"{MARKER}\ntwo\n"]
    assert hub.writes() == [("POST", "/repos/lab/fleet/issues/7/comments"),
                            ("PATCH", "/repos/lab/fleet/issues/comments/1000")]


def test_an_unchanged_text_is_not_written_again(hub: GitHubStandIn) -> None:
    post(hub, "same")
    hub.pulls[7][0]["body"] = hub.pulls[7][0]["body"].replace("\n", "\r\n")  # as GitHub returns some of them
    assert post(hub, "same").created is False
    assert [method for method, _ in hub.writes()] == ["POST"]


def test_both_of_two_comments_written_at_once_are_updated(hub: GitHubStandIn) -> None:
    post(hub, "one")
    hub.add(f"{MARKER}\none\n", BOT)
    post(hub, "two")
    post(hub, "two")
    assert hub.of(BOT) == [f"{MARKER}\ntwo\n"] * 2
    assert [method for method, _ in hub.writes()] == ["POST", "PATCH", "PATCH"]


def test_our_comment_is_found_on_a_later_page(hub: GitHubStandIn) -> None:
    for number in range(230):
        hub.add(f"talk {number}", "someone")
    ours = hub.add(f"{MARKER}\nold", BOT)
    assert post(hub, "new").created is False
    assert ours["body"] == f"{MARKER}\nnew\n"


def test_a_comment_with_our_marker_by_another_author_is_left_alone(hub: GitHubStandIn) -> None:
    fake = hub.add(f"{MARKER}\nAll fine, merge me!", "mallory")
    assert post(hub, "3 blocked").created is True
    assert fake["body"].endswith("merge me!")
    assert hub.of(BOT) == [f"{MARKER}\n3 blocked\n"]


@pytest.mark.parametrize("body", [f"> {MARKER}\nquoted", f"see\n{MARKER}\n", f"{MARKER} and more",
                                  "<!-- fleetctl:plan:lab2 -->\nanother fleet"])
def test_only_a_first_line_equal_to_the_marker_is_recognized(hub: GitHubStandIn, body: str) -> None:
    hub.add(body, BOT)
    assert post(hub, "new").created is True


def test_with_a_personal_token_its_owner_is_the_author(hub: GitHubStandIn) -> None:
    hub.add(f"{MARKER}\nof the job", BOT)
    post(hub, "one", PERSON_TOKEN)
    assert post(hub, "two", PERSON_TOKEN).created is False
    assert hub.of("octo-lab") == [f"{MARKER}\ntwo\n"]
    assert hub.of(BOT) == [f"{MARKER}\nof the job"]


def test_if_the_owner_of_the_token_is_unknown_the_actions_bot_is_the_author(hub: GitHubStandIn) -> None:
    hub.has_graphql = False
    hub.add(f"{MARKER}\nold", BOT)
    assert post(hub, "new").created is False


def test_while_the_query_for_the_token_owner_fails_nothing_is_written(hub: GitHubStandIn) -> None:
    hub.add(f"{MARKER}\nold", BOT)
    hub.refusals["POST"] = [Answer(502)] * 99
    with pytest.raises(ForgeError, match="502"):
        post(hub, "new")
    assert hub.writes() == []


def test_a_read_only_token_is_refused_with_the_reason(hub: GitHubStandIn) -> None:
    with pytest.raises(ForgeError, match="403") as refused:
        post(hub, "x", READ_ONLY_TOKEN, from_fork=True)
    assert "read-only token; this is expected" in str(refused.value.hint)
    with pytest.raises(ForgeError) as refused:
        post(hub, "x", READ_ONLY_TOKEN)
    assert "pull-requests: write" in str(refused.value.hint)


@pytest.mark.parametrize(("token", "number", "status"), [("wrong", 7, 401), (JOB_TOKEN, 8, 404)])
def test_a_refusal_is_an_error_with_its_status(hub: GitHubStandIn, token: str, number: int, status: int) -> None:
    with pytest.raises(ForgeError) as refused:
        GitHub(hub.environment(token), ChangeRequest(number, "#")).comment(MARKER)
    assert refused.value.status == status
    assert refused.value.hint


def test_a_text_that_is_too_long_is_an_error_and_is_not_retried(hub: GitHubStandIn) -> None:
    with pytest.raises(ForgeError, match=r"422.*Validation Failed"):
        post(hub, "x" * 70_000)
    assert len(hub.writes()) == 1


def test_the_wait_requested_by_the_forge_is_respected(hub: GitHubStandIn) -> None:
    hub.refusals["POST"] = [Answer(403, {"message": "You have exceeded a secondary rate limit"}, {"Retry-After": "7"}),
                            Answer(429, "", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700000010",
                                             "Date": "Tue, 14 Nov 2023 22:13:20 GMT"})]
    waits = Waits()
    assert post(hub, "x", waits=waits).created is True
    assert waits == [7, 10]


def test_a_wait_of_an_hour_is_refused(hub: GitHubStandIn) -> None:
    hub.refusals["GET"] = [Answer(403, {"message": "API rate limit exceeded"}, {"Retry-After": "3600"})]
    waits = Waits()
    with pytest.raises(ForgeError, match="asks to wait 3600 s"):
        post(hub, "x", waits=waits)
    assert waits == []


def test_a_server_error_is_retried_a_few_times(hub: GitHubStandIn) -> None:
    waits = Waits()
    hub.refusals["GET"] = [Answer(502, "<html>"), Answer(0)]
    assert post(hub, "x", waits=waits).created is True
    assert waits == [1, 3]
    hub.refusals["PATCH"] = [Answer(503)] * 99
    with pytest.raises(ForgeError, match="503"):
        post(hub, "y")


def test_a_failed_create_that_took_effect_leaves_one_comment(hub: GitHubStandIn) -> None:
    answer, failed = hub.answer, []

    def fail_after_creating(request: Any) -> Answer:
        done = answer(request)
        if request.method == "POST" and done.status == 201 and not failed:
            failed.append(request)
            return Answer(502)
        return done

    hub.answer = fail_after_creating  # type: ignore[method-assign]
    post(hub, "x")
    assert hub.of(BOT) == [f"{MARKER}\nx\n"]


def test_a_comment_deleted_meanwhile_is_created_again(hub: GitHubStandIn) -> None:
    gone = hub.add(f"{MARKER}\nold", BOT)
    answer = hub.answer

    def delete_before_update(request: Any) -> Answer:
        if request.method == "PATCH" and gone in hub.pulls[7]:
            hub.pulls[7].remove(gone)
        return answer(request)

    hub.answer = delete_before_update  # type: ignore[method-assign]
    assert post(hub, "new").created is True
    assert hub.of(BOT) == [f"{MARKER}\nnew\n"]


@pytest.mark.parametrize("answer", [Answer(200, "<html>login</html>"), Answer(200, {"not": "a list"}),
                                    Answer(301, "", {"Location": "https://elsewhere.example.com/steal"})])
def test_any_other_answer_is_an_error_and_no_redirect_is_followed(hub: GitHubStandIn, answer: Answer) -> None:
    hub.refusals["GET"] = [answer]
    with pytest.raises(ForgeError):
        post(hub, "x")


@pytest.mark.parametrize("status", [200, 403, 500])
def test_an_oversized_answer_is_not_read_completely(
        hub: GitHubStandIn, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(http, "ANSWER_BYTES", 1 << 20)
    hub.refusals["GET"] = [Answer(status, gzip.compress(b" " * (64 << 20), 1), {"Content-Encoding": "gzip"})] * 9
    tracemalloc.start()
    with pytest.raises(ForgeError, match="answered with more than 1Mi"):
        post(hub, "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_no_error_contains_the_token(hub: GitHubStandIn) -> None:
    for refusal in (Answer(500), Answer(401, {"message": "Bad credentials"}), Answer(0), Answer(200, "x")):
        hub.refusals["GET"] = [refusal] * 99
        with pytest.raises(ForgeError) as refused:
            post(hub, "x")
        assert JOB_TOKEN not in f"{refused.value.message} {refused.value.hint} {refused.value!r}"


@pytest.mark.parametrize("suffix", ["TOKEN", "REPOSITORY"])
def test_a_missing_variable_is_named_with_the_value_to_set(hub: GitHubStandIn, suffix: str) -> None:
    with pytest.raises(ForgeError, match=f"GITHUB_{suffix} is not set") as refused:
        GitHub({**hub.environment(), f"GITHUB_{suffix}": ""}, ChangeRequest(7, "#7"), sleep=Waits()).comment(MARKER)
    assert f"{{GITHUB_{suffix}: ${{{{ github.{suffix.lower()} }}}}}}" in str(refused.value.hint)


def test_an_unreachable_address_is_an_error(hub: GitHubStandIn) -> None:
    environment = {**hub.environment(), "GITHUB_API_URL": "http://127.0.0.1:9"}
    with pytest.raises(ForgeError, match="cannot reach"):
        GitHub(environment, ChangeRequest(7, "#7"), sleep=Waits()).comment(MARKER)
