"""How often rights are asked for again."""

from __future__ import annotations

import asyncio

import pytest

from paddlewheel.bus.nats import renewal as module
from paddlewheel.bus.nats.renewal import Renewal


def too_soon() -> None:
    raise AssertionError("rights are not that old")


def live(renewal: Renewal, *, gets_rights: bool = True, is_refused: bool = False) -> None:
    """One connection."""
    renewal.begin()
    if gets_rights:
        renewal.made()
    if is_refused:
        renewal.refused(too_soon)
        renewal.refused(too_soon)
    renewal.end()


async def test_connections_in_which_something_is_refused_are_counted_until_one_has_all_it_needs() -> None:
    renewal = Renewal()
    for _ in range(3):
        live(renewal, is_refused=True)
    assert renewal.renewals == 3

    live(renewal)
    assert renewal.renewals == 0


async def test_an_attempt_that_gave_no_rights_says_nothing_of_those_that_were_given() -> None:
    renewal = Renewal()
    for _ in range(3):
        live(renewal, is_refused=True)
        live(renewal, gets_rights=False)
    assert renewal.renewals == 3


async def test_what_a_replaced_client_still_hears_keeps_no_renewal_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_INTERVAL_SECONDS", 0.01)
    renewal, is_renewed = Renewal(), asyncio.Event()
    live(renewal)
    renewal.refused(too_soon)
    renewal.begin()
    renewal.refused(is_renewed.set)

    await asyncio.wait_for(is_renewed.wait(), 30)
    renewal.end()
