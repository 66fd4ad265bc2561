"""The Open Inference Protocol v2 over REST, with its extension for binary tensor data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from paddle_runtime.domain import tensors
from paddle_runtime.domain.model import Array, Identity, Refused, Signature, Tensors, TensorSpec

HEADER_LENGTH = "Inference-Header-Content-Length"
"""HTTP header: length of the JSON part of a body whose rest is binary tensors."""
EXTENSIONS = ("binary_tensor_data",)
PLATFORM = "paddle_inference"

_Size = Annotated[int, Field(ge=0, lt=2**31)]
_Parameters = Annotated[dict[str, Any], BeforeValidator(lambda given: {} if given is None else given)]
_MOST_DIMENSIONS = 64
"""The limit of NumPy."""
_MOST_TENSORS = 1024


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Input(_Message):
    name: str
    shape: Annotated[list[_Size], Field(max_length=_MOST_DIMENSIONS)]
    datatype: str
    parameters: _Parameters = {}
    data: Any = None


class _Output(_Message):
    name: str
    parameters: _Parameters = {}


class _Request(_Message):
    id: str | None = None
    parameters: _Parameters = {}
    inputs: Annotated[list[_Input], Field(min_length=1, max_length=_MOST_TENSORS)]
    outputs: Annotated[list[_Output], Field(max_length=_MOST_TENSORS)] | None = None


@dataclass(frozen=True)
class Wanted:
    """An output that the client asked for."""

    spec: TensorSpec
    binary: bool


@dataclass(frozen=True)
class Inference:
    """A request that fits the model."""

    id: str | None
    tensors: Tensors
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True)
class Reply:
    """`json_length` is None when there are no binary tensors."""

    body: bytes
    json_length: int | None


def parse(body: bytes, json_length: int | None, signature: Signature) -> Inference:
    """Read and check a request.

    Args:
        json_length: value of HEADER_LENGTH, None without that header.

    Raises:
        Refused: names the field, what was expected and what came.
    """
    size = len(body) if json_length is None else json_length
    if not 0 <= size <= len(body):
        raise Refused(f"{HEADER_LENGTH}: {size}, but the body has {len(body)} bytes")
    request = _request(body[:size])
    return Inference(
        request.id,
        _inputs(request, memoryview(body)[size:], signature),
        _wanted(request, signature),
    )


def reply(identity: Identity, inference: Inference, outputs: Tensors) -> Reply:
    """The answer to a request."""
    parts = [_output(wanted, outputs[wanted.spec.name]) for wanted in inference.wanted]
    head: dict[str, Any] = {"model_name": identity.name, "model_version": identity.version}
    if inference.id is not None:
        head["id"] = inference.id
    head["outputs"] = [described for described, _ in parts]
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    binary = b"".join(raw for _, raw in parts)
    is_binary = any(wanted.binary for wanted in inference.wanted)
    return Reply(text + binary, len(text) if is_binary else None)


def server_metadata(version: str) -> Mapping[str, object]:
    """Body of `GET /v2`."""
    return {"name": "paddle-runtime", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(identity: Identity, signature: Signature) -> Mapping[str, object]:
    """Body of `GET /v2/models/NAME`."""
    return {
        "name": identity.name,
        "versions": [identity.version],
        "platform": PLATFORM,
        "inputs": [_described(spec) for spec in signature.inputs],
        "outputs": [_described(spec) for spec in signature.outputs],
    }


def read_json(raw: bytes) -> object:
    """Raises Refused."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refused(f"body: not valid JSON: {error}") from None


def _request(raw: bytes) -> _Request:
    try:
        return _Request.model_validate(read_json(raw))
    except ValidationError as error:
        raise Refused("; ".join(_fault(item) for item in error.errors(include_url=False)[:5])) from None


def _fault(item: Any) -> str:
    return f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}"


def _inputs(request: _Request, binary: memoryview, signature: Signature) -> Tensors:
    found: dict[str, Array] = {}
    for given in request.inputs:
        spec = signature.input(given.name)
        if given.name in found:
            raise Refused(f"input {given.name!r}: given twice")
        tensors.check(spec, given.datatype, tuple(given.shape))
        found[given.name], binary = _tensor(spec, given, binary)
    if len(binary):
        raise Refused(f"body: {len(binary)} bytes follow the last binary tensor")
    return in_order(found, signature)


def in_order(found: Tensors, signature: Signature) -> Tensors:
    """The tensors as the model takes them. Raises Refused: one is missing."""
    for spec in signature.inputs:
        if spec.name not in found:
            raise Refused(f"input {spec.name!r}: missing; expected {spec}")
    return {spec.name: found[spec.name] for spec in signature.inputs}


def _tensor(spec: TensorSpec, given: _Input, binary: memoryview) -> tuple[Array, memoryview]:
    """The tensor and what follows it in the binary part."""
    shape = tuple(given.shape)
    size = given.parameters.get("binary_data_size")
    if size is None:
        return tensors.from_json(spec, shape, given.data), binary
    if given.data is not None:
        raise Refused(f"input {spec.name!r}: give data or binary_data_size, not both")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(binary):
        raise Refused(
            f"input {spec.name!r}: binary_data_size is {tensors.shown(size)}, {len(binary)} bytes are left"
        )
    return tensors.from_bytes(spec, shape, binary[:size]), binary[size:]


def _wanted(request: _Request, signature: Signature) -> tuple[Wanted, ...]:
    """All outputs when the client names none."""
    usual = request.parameters.get("binary_data_output") is True
    if not request.outputs:
        return tuple(Wanted(spec, usual) for spec in signature.outputs)
    specs = chosen_outputs([asked.name for asked in request.outputs], signature)
    return tuple(
        Wanted(spec, asked.parameters.get("binary_data", usual) is True)
        for spec, asked in zip(specs, request.outputs, strict=True)
    )


def chosen_outputs(names: Sequence[str], signature: Signature) -> tuple[TensorSpec, ...]:
    """Raises Refused: one is unknown, or named twice, which would make a large answer of a small request."""
    found: dict[str, TensorSpec] = {}
    for name in names:
        if name in found:
            raise Refused(f"output {name[:80]!r}: named twice")
        found[name] = signature.output(name)
    return tuple(found.values())


def _output(wanted: Wanted, array: Array) -> tuple[dict[str, Any], bytes]:
    spec = wanted.spec
    head: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": list(array.shape)}
    if wanted.binary:
        raw = tensors.to_bytes(array)
        return {**head, "parameters": {"binary_data_size": len(raw)}}, raw
    return {**head, "data": tensors.to_json(spec.datatype, array).reshape(prod(array.shape))}, b""


def _described(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}
