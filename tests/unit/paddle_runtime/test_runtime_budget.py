"""The bytes that all requests may hold together."""

from __future__ import annotations

import pytest

from paddle_runtime.budget import Budget
from paddle_runtime.domain.model import Refused


def test_what_one_request_holds_another_cannot_until_it_ends() -> None:
    budget = Budget(10)

    with budget.share() as one, budget.share() as other:
        one.take(4)
        one.take(3)
        with pytest.raises(Refused, match="requests hold 7 of 10 bytes already") as refused:
            other.take(4)
        other.take(3)
    with budget.share() as late:
        late.take(10)

    assert (refused.value.status, refused.value.retry_after) == (503, 1)


def test_what_is_there_is_counted_even_beyond_the_limit() -> None:
    budget = Budget(10)

    with budget.share() as one, budget.share() as other:
        one.take(4)
        one.hold(20)
        with pytest.raises(Refused):
            other.check(1)
        one.hold(2)
        other.check(8)
