"""Kubernetes quantities compared: 0.2, 500m, 4Gi, 1e3."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

_FORM = re.compile(r"([+-]?[0-9.]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?")
_FACTORS = {
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
}


def amount(quantity: int | str) -> Decimal:
    """In base units. Raises ValueError for what is no quantity."""
    match = _FORM.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity: write a number such as 2, 500m or 4Gi")
    number, suffix = match[1], match[2] or ""
    factor = _FACTORS.get(suffix)
    return Decimal(number) * factor if factor is not None else Decimal(f"{number}{suffix}")


def completed(
    requests: Mapping[str, int | str], limits: Mapping[str, int | str], defaults: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Resources with the defaults for what is absent: a request is never above its limit."""
    asked = {name: str(value) for name, value in requests.items()}
    capped = {name: str(value) for name, value in limits.items()}
    for name, default in defaults.items():
        request, limit = asked.get(name), capped.get(name)
        asked[name] = request or _lower(default, limit)
        capped[name] = limit or _higher(default, request)
    return {"requests": asked, "limits": capped}


def _lower(default: str, limit: str | None) -> str:
    return limit if limit is not None and amount(limit) < amount(default) else default


def _higher(default: str, request: str | None) -> str:
    return request if request is not None and amount(request) > amount(default) else default
