"""A trouble is shown with our reason, and the reason and message of the API server."""

from __future__ import annotations

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Trouble, Verb

KEY = Key("team-a", "x")


@pytest.mark.parametrize(
    ("verb", "shown"),
    [
        ("create", "FailedCreate"),
        ("patch", "FailedUpdate"),
        ("delete", "FailedDelete"),
        ("read", "FailedGet"),
    ],
)
def test_the_api_servers_reason_is_part_of_the_message(verb: Verb, shown: str) -> None:
    trouble = Trouble(verb, "Pod", KEY, "Forbidden", "exceeded quota")
    assert trouble.shown_reason == shown
    assert trouble.shown_message == "Pod team-a/x: Forbidden: exceeded quota"


def test_a_reason_of_ours_is_shown_as_it_is() -> None:
    trouble = Trouble("create", "Pod", KEY, "OwnedByAnother", "delete it")
    assert (trouble.shown_reason, trouble.shown_message) == ("OwnedByAnother", "Pod team-a/x: delete it")


def test_an_error_without_a_message_is_named_once() -> None:
    assert Trouble("read", "Node", Key("", "n"), "Timeout", "Timeout").shown_message == "Node n: Timeout"


def test_an_internal_error_is_the_api_servers_and_no_bug_of_ours() -> None:
    """The API server reports InternalError when a webhook does not answer."""
    trouble = Trouble("create", "Pod", KEY, "InternalError", "failed calling webhook")
    assert trouble.shown_reason == "FailedCreate"
    assert trouble.shown_message == "Pod team-a/x: InternalError: failed calling webhook"
