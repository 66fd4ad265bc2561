"""Selects the waiting requests that run together, and divides the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_runtime.domain.model import Array, Signature, Tensors

Key = tuple[tuple[int, ...], ...]
"""Shapes of the inputs beyond the first dimension."""


class NotSplit(Exception):  # noqa: N818 - a verdict on a run, not a failure
    """These requests must run apart."""


def rows_of(tensors: Tensors) -> int:
    """Size of the first dimension, which all inputs share; 0 when they do not."""
    sizes = {array.shape[0] if array.ndim else 0 for array in tensors.values()}
    return sizes.pop() if len(sizes) == 1 else 0


def key_of(tensors: Tensors, signature: Signature) -> Key | None:
    """Requests of one key can be joined; None runs alone."""
    if not signature.joins or not rows_of(tensors):
        return None
    return tuple(array.shape[1:] for array in tensors.values())


def count_joined(keys: Sequence[Key | None], rows: Sequence[int], most_rows: int) -> list[int]:
    """Indices of the requests that run with the first one, in order, up to `most_rows` rows together."""
    chosen, total = [0], rows[0]
    for index in range(1, len(keys) if keys[0] is not None else 0):
        if keys[index] == keys[0] and total + rows[index] <= most_rows:
            chosen.append(index)
            total += rows[index]
    return chosen


def join(requests: Sequence[Tensors]) -> Tensors:
    """One request with all rows."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([request[name] for request in requests]) for name in requests[0]}


def split(outputs: Tensors, rows: Sequence[int]) -> list[Tensors]:
    """The rows of each request. Raises NotSplit: an output of several requests has other rows than they."""
    if len(rows) == 1:
        return [outputs]
    for name, array in outputs.items():
        if array.shape[:1] != (sum(rows),):
            raise NotSplit(f"output {name!r} has shape {list(array.shape)} for {sum(rows)} rows")
    ends = np.cumsum(rows)[:-1]
    parts: dict[str, list[Array]] = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: parts[name][index] for name in outputs} for index in range(len(rows))]
