"""The parts of any Kubernetes object that commands show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from paddlewheel.cli.output import age
from paddlewheel.cli.table import Table
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.stamps import parse_stamp


def conditions(found: Iterable[Condition]) -> Table:
    """A row for each condition of an object."""
    table = Table(("condition", "status", "reason", "message"), wraps={"message"})
    for condition in found:
        table.add_row(condition.type, condition.status, condition.reason, condition.message)
    return table


def age_of(obj: Mapping[str, Any], now: datetime) -> str:
    """Time since the object was created; "" for an object that is not stored."""
    created = parse_stamp(obj["metadata"].get("creationTimestamp"))
    return age(created, now) if created else ""
