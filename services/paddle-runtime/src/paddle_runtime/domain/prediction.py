"""The body of Paddle Serving's web service: `{"feed": [{NAME: VALUES}], "fetch": [NAME]}`.

Each element of `feed` is one sample without the batch dimension. Numbers take the input's type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import orjson

from paddle_runtime.domain import oip, tensors
from paddle_runtime.domain.model import ANY, Array, Refused, Signature, Tensors, TensorSpec


@dataclass(frozen=True)
class Prediction:
    """A request that fits the model."""

    tensors: Tensors
    fetch: tuple[TensorSpec, ...]


def parse(body: bytes, signature: Signature) -> Prediction:
    """Read and check a request. Raises Refused."""
    request = oip.read_json(body)
    if not isinstance(request, dict) or "feed" not in request:
        raise Refused('body: expected {"feed": [{NAME: VALUES}], "fetch": [NAME]}')
    samples = _samples(request["feed"])
    found = {spec.name: _batch(spec, samples) for spec in signature.inputs}
    return Prediction(oip.in_order(found, signature), _fetch(request.get("fetch"), signature))


def reply(prediction: Prediction, outputs: Tensors) -> bytes:
    """`{"result": {NAME: VALUES}}`, nested by shape."""
    result = {spec.name: tensors.to_json(spec.datatype, outputs[spec.name]) for spec in prediction.fetch}
    return orjson.dumps({"result": result}, option=orjson.OPT_SERIALIZE_NUMPY)


def _samples(feed: object) -> Sequence[Mapping[str, object]]:
    samples = [feed] if isinstance(feed, dict) else feed
    if not isinstance(samples, list) or not samples or not all(isinstance(item, dict) for item in samples):
        raise Refused("feed: expected a list of at least one object {NAME: VALUES}")
    return samples


def _fetch(names: object, signature: Signature) -> tuple[TensorSpec, ...]:
    """All outputs when the client names none."""
    if names in (None, []):
        return signature.outputs
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused("fetch: expected a list of names of outputs")
    return oip.chosen_outputs(names, signature)


def _batch(spec: TensorSpec, samples: Sequence[Mapping[str, object]]) -> Array:
    rows = [_row(spec, sample, f"feed[{number}]") for number, sample in enumerate(samples)]
    try:
        batch = np.stack(rows)
    except ValueError:
        raise Refused(f"input {spec.name!r}: samples of one request must have the same shape") from None
    tensors.check(spec, spec.datatype, batch.shape)
    return batch


def _row(spec: TensorSpec, sample: Mapping[str, object], where: str) -> Array:
    if spec.name not in sample:
        raise Refused(f"{where}: input {spec.name!r} is missing; expected {spec} without the first dimension")
    array = tensors.cast_json(spec, sample[spec.name])
    shape = spec.shape[1:]
    if ANY in shape:
        return array
    if array.size != prod(shape):
        wanted = f"{prod(shape)} values of {spec.datatype} {list(shape)}"
        raise Refused(f"{where}: input {spec.name!r}: expected {wanted}, got {array.size}")
    return array.reshape(shape)
