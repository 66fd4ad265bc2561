"""Finds out by trying whether requests to a model may be joined, and how dummies for it look."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paddle_runtime.domain import batches, tensors
from paddle_runtime.domain.model import (
    ANY,
    CARRIERS,
    FLOATS,
    Array,
    Datatype,
    DummyShapes,
    Tensors,
    TensorSpec,
)

Run = Callable[[Tensors], Tensors]

_ROWS = (1, 2)
"""Of the two requests that are tried together."""
_CLOSE = {Datatype.FP32: 1e-4, Datatype.FP64: 1e-4, Datatype.FP16: 1e-2, Datatype.BF16: 5e-2}
"""By how much of an output's largest value batches of another size may differ; other datatypes may not."""


def dummies(inputs: Sequence[TensorSpec], shapes: DummyShapes) -> Tensors:
    """Inputs that most models take: 1 where a size is free, and zeros for integers, which may be indices."""
    chance = np.random.default_rng(0)
    return {spec.name: _dummy(spec, _shape(spec, shapes), chance) for spec in inputs}


def joins(run: Run, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], shapes: DummyShapes) -> bool:
    """Whether requests that run together get what they get apart, and nothing of each other.

    Batches of equal size are computed alike, so independent rows get the same bits beside whichever others.
    A model whose rows look alike in spite of different inputs is not joined: it could as well mix them.

    Args:
        run: raises what it likes for inputs that the model refuses.
    """
    if not all(spec.shape[:1] == (ANY,) for spec in [*inputs, *outputs]):
        return False
    (one, other), (pair, other_pair) = (
        [_probe(inputs, shapes, rows, variant) for variant in (0, 1)] for rows in _ROWS
    )
    apart = run(one), run(other_pair)
    together = [run(batches.join(both)) for both in ((one, pair), (one, other_pair), (other, other_pair))]
    # Labels follow from scores, and most often all probes get the same one.
    telling = [spec for spec in outputs if spec.datatype in FLOATS] or outputs
    for spec in outputs:
        batch = [_values(spec, found) for found in together]
        if not _is_rowwise(spec, batch, [_values(spec, found) for found in apart]):
            return False
        if spec in telling and not _tells(batch):
            return False
    return True


def _is_rowwise(spec: TensorSpec, together: Sequence[Array], apart: Sequence[Array]) -> bool:
    """Of one output; the three batches are `one, pair`, `one, other_pair`, `other, other_pair`."""
    width, total, ends = together[0].shape[1:], sum(_ROWS), _ROWS[0]
    sizes = [array.shape for array in (*apart, *together)]
    if sizes != [(rows, *width) for rows in (*_ROWS, total, total, total)]:
        return False
    first, second, third = together
    independent = _is_equal(first[:ends], second[:ends]) and _is_equal(second[ends:], third[ends:])
    return independent and _is_close(spec, second, np.concatenate(apart))


def _tells(together: Sequence[Array]) -> bool:
    """Whether every row changes with its own input."""
    first, second, third = together
    ends = _ROWS[0]
    return _is_changed(second[:ends], third[:ends]) and _is_changed(first[ends:], second[ends:])


def _is_changed(before: Array, after: Array) -> bool:
    """In each row; one that is not a number tells nothing."""
    differs = (before != after) & ~(np.isnan(before) & np.isnan(after))
    return bool(differs.reshape(len(differs), -1).any(axis=1).all())


def _is_equal(before: Array, after: Array) -> bool:
    return np.array_equal(before, after, equal_nan=True)


def _is_close(spec: TensorSpec, together: Array, apart: Array) -> bool:
    share = _CLOSE.get(spec.datatype)
    if share is None:
        return _is_equal(together, apart)
    finite = np.abs(apart[np.isfinite(apart)])
    limit = share * float(finite.max(initial=0))
    return np.allclose(together, apart, rtol=0, atol=limit, equal_nan=True)


def _values(spec: TensorSpec, found: Tensors) -> Array:
    array = found[spec.name]
    return tensors.widened(array) if spec.datatype is Datatype.BF16 else array


def _probe(inputs: Sequence[TensorSpec], shapes: DummyShapes, rows: int, variant: int) -> Tensors:
    """Rows of one variant, 0 or 1, differ from those of the other."""
    chance = np.random.default_rng([rows, variant])
    made: dict[str, Array] = {}
    for spec in inputs:
        shape = [rows, *_shape(spec, shapes)[1:]]
        is_float = spec.datatype in FLOATS
        made[spec.name] = _dummy(spec, shape, chance) if is_float else _bits(spec, shape, chance, variant)
    return made


def _shape(spec: TensorSpec, shapes: DummyShapes) -> list[int]:
    return [max(size, 1) for size in shapes.get(spec.name, spec.shape)]


def _dummy(spec: TensorSpec, shape: Sequence[int], chance: np.random.Generator) -> Array:
    if spec.datatype not in FLOATS:
        return np.zeros(shape, CARRIERS[spec.datatype])
    numbers = chance.random(shape)
    return (
        tensors.narrowed(numbers)
        if spec.datatype is Datatype.BF16
        else numbers.astype(CARRIERS[spec.datatype])
    )


def _bits(spec: TensorSpec, shape: Sequence[int], chance: np.random.Generator, first: int) -> Array:
    """Zeros and ones: other integers may be beyond what a model has. The first of each row is given."""
    bits = chance.integers(0, 2, shape)
    bits.reshape(shape[0], -1)[:, 0] = first
    return bits.astype(CARRIERS[spec.datatype])
