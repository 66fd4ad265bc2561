"""Kubernetes quantities (0.2, 500m, 4Gi, 1e3) as exact numbers, and back."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_FORM = re.compile(r"([+-]?[0-9.]{1,60})(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,3})?")
"""The form of a quantity. Its length is limited because computing with very long numbers is slow."""
_BINARY = {f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
_FACTORS = {
    **_BINARY,
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
}
_SHOWN_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi")
_SHOWN_PARTS = ("m", "u", "n")


def amount(quantity: int | str) -> Fraction:
    """The value of a quantity, e.g. 1/2 for 500m. Raises ValueError if the text is not a quantity."""
    match = _FORM.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity: write a number such as 2, 500m or 4Gi")
    number, suffix = match[1], match[2] or ""
    factor = _FACTORS.get(suffix)
    return Fraction(number) * factor if factor is not None else Fraction(f"{number}{suffix}")


def quantity(value: Fraction) -> str:
    """The shortest usual text for a value, e.g. 500m for 1/2.

    It is rounded up to billionths, as in Kubernetes.
    """
    if value.denominator == 1:
        unit = next((u for u in _SHOWN_BINARY if value and (value / _BINARY[u]).denominator == 1), "")
        return f"{value / _FACTORS[unit]}{unit}"
    unit = next((u for u in _SHOWN_PARTS if (value / _FACTORS[u]).denominator == 1), "n")
    return f"{math.ceil(value / _FACTORS[unit])}{unit}"
