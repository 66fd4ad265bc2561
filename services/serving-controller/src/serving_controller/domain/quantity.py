"""Requests and limits, each completed by the other."""

from __future__ import annotations

from collections.abc import Mapping

from paddlewheel.contracts.quantities import amount


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
