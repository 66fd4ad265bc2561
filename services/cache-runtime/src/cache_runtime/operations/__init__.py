"""The operations of runs, one file for each row of `paddlewheel.contracts.crds.operations.OPERATIONS`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from cache_runtime.operations.base import Node, RunOperation
from paddlewheel.contracts.crds.operations import OPERATIONS


def create_operations(node: Node) -> Mapping[str, RunOperation]:
    """All operations by member: `create` of the module of that name. A missing module fails the start."""
    modules = {row.member: import_module(f"{__name__}.{row.member}") for row in OPERATIONS}
    return {member: module.create(node) for member, module in modules.items()}
