"""The `list` command of a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.cli.output import Format, print_json
from paddlewheel.cli.table import Table, print_table
from paddlewheel.cli.target import Where
from paddlewheel.kube.ports import Object, Resource


def print_objects(
    where: Where,
    resource: Resource,
    output: Format,
    table: Callable[[list[Object]], Table],
) -> None:
    """Print the objects of a kind, or where the command looked when there are none. Raises Permanent."""
    found = asyncio.run(where.objects(resource))
    if output is Format.JSON:
        print_json(found)
    elif found:
        print_table(table(found))
    else:
        where.report_none(resource)
