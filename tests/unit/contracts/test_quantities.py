"""Kubernetes quantities as exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.contracts.crds.quantity import PATTERN
from paddlewheel.contracts.quantities import amount, quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.2", Fraction(1, 5)),
        ("500m", Fraction(1, 2)),
        ("1Ki", 1024),
        ("2G", 2 * 10**9),
        ("1e3", 1000),
        (3, 3),
        ("100n", Fraction(1, 10**7)),
        (".5Mi", 512 * 1024),
        ("+1.5E", 15 * 10**17),
    ],
)
def test_quantities_are_read(text: int | str, value: Fraction | int) -> None:
    assert amount(text) == value


@pytest.mark.parametrize(
    "text", ["much", "1 core", "", "1..2", "1e99999999", "9" * 100, "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|literal"):
        amount(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(4), "4"),
        (Fraction(1, 5), "200m"),
        (Fraction(3, 10**6), "3u"),
        (Fraction(1, 3 * 10**9), "1n"),
        (Fraction(1024), "1024"),
        (Fraction(30 * 2**20), "30Mi"),
        (Fraction(10 * 2**30), "10Gi"),
        (Fraction(3 * 2**40, 2), "1536Gi"),
    ],
)
def test_amounts_are_shown_as_they_are_written(value: Fraction, text: str) -> None:
    assert quantity(value) == text


@given(st.fractions(min_value=0, max_value=2**63).map(lambda f: Fraction(round(f * 10**9), 10**9)))
def test_what_is_shown_is_the_same_amount_and_a_quantity(value: Fraction) -> None:
    assert amount(quantity(value)) == value
    assert re.fullmatch(PATTERN, quantity(value))
