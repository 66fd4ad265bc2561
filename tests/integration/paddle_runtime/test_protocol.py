"""Requests and answers of the protocols, of datatypes, limits and faults."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from tests.integration.paddle_runtime.conftest import (
    MODEL,
    NAME,
    ONE,
    Client,
    Runtime,
    Shared,
    Start,
    images,
    mixed,
    tensor,
)

from paddlewheel.testkit.wait import eventually

CARRIERS = {
    "bool": ("BOOL", np.bool_),
    "int8": ("INT8", np.int8),
    "int16": ("INT16", np.int16),
    "int32": ("INT32", np.int32),
    "int64": ("INT64", np.int64),
    "uint8": ("UINT8", np.uint8),
    "float16": ("FP16", np.float16),
    "bfloat16": ("BF16", np.uint16),
    "float32": ("FP32", np.float32),
    "float64": ("FP64", np.float64),
}


@pytest.fixture
def digits(models: Path) -> dict[str, Any]:
    """`images` and the `answers` that Paddle itself gave."""
    return dict(np.load(models / "digits.npz"))


async def test_metadata_and_health(shared: Shared) -> None:
    client = shared("digits")

    server = (await client.get("v2")).json
    model = (await client.get(f"{MODEL}/versions/1")).json

    assert server["extensions"] == ["binary_tensor_data"]
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert [(o["datatype"], o["shape"]) for o in model["outputs"]] == [("FP32", [-1, 10])]
    for path in ("v2/health/live", "v2/health/ready", f"{MODEL}/ready"):
        assert (await client.get(path)).status == 200


async def test_health_and_metrics_have_a_port_of_their_own(shared: Shared) -> None:
    """Routes lead to the port for requests, so anyone could read them there."""
    client = shared("digits")

    for path in ("healthz", "readyz", "metrics"):
        assert (await client.get_own(path)).status == 200
        assert (await client.get(path)).status == 404
    assert (await client.get_own("v2")).status == 404


@pytest.mark.parametrize("name", ["digits", "legacy/digits"])
async def test_answers_are_those_of_paddle_in_both_formats(shared: Shared, models: Path, name: str) -> None:
    expected = np.load(models / f"{name}.npz")

    answer = await shared(name).post(f"{MODEL}/infer", images(expected["images"][:5].tolist()))

    (output,) = answer.json["outputs"]
    assert output["shape"] == [5, 10]
    np.testing.assert_allclose(
        np.reshape(output["data"], output["shape"]), expected["answers"][:5], rtol=1e-4, atol=1e-5
    )


async def test_several_inputs_and_outputs_of_different_datatypes(shared: Shared) -> None:
    client = shared("mixed")
    body = {
        "id": "seven",
        "inputs": [
            tensor("flag", "BOOL", [[True], [False]]),
            tensor("ids", "INT64", [[3, 9, 4], [7, 7, 8]]),
            tensor("numbers", "FP32", [1, 2, 3, 4, 5, 6], [2, 3]),
        ],
    }

    everything = (await client.infer(body)).json
    names = [output["name"] for output in everything["outputs"]]
    one = (await client.infer({**body, "outputs": [{"name": names[1]}]})).json

    assert everything["id"] == "seven"
    assert [(o["datatype"], o["shape"]) for o in everything["outputs"]] == [
        ("FP32", [2, 1]), ("INT64", [2]), ("BOOL", [2, 1]),
    ]  # fmt: skip
    assert everything["outputs"][1]["data"] == [9, 8]
    assert everything["outputs"][2]["data"] == [False, True]
    assert one["outputs"] == [everything["outputs"][1]]


async def test_every_datatype_as_json_and_as_binary(shared: Shared) -> None:
    client = shared("every")
    arrays: dict[str, Any] = {
        f"x_{name}": np.array([[0, 1], [1, 0]]).astype(kind) for name, (_, kind) in CARRIERS.items()
    }
    arrays["x_bfloat16"] = np.array([[0x0000, 0x3F80], [0xBF80, 0x4049]], np.uint16)
    numbers = {**arrays, "x_bfloat16": np.array([[0.0, 1.0], [-1.0, 3.140625]])}
    types = {f"x_{name}": datatype for name, (datatype, _) in CARRIERS.items()}
    plain = {"inputs": [tensor(name, types[name], array.tolist()) for name, array in numbers.items()]}

    as_json = (await client.infer(plain)).json["outputs"]
    as_binary = await binary_infer(client, arrays, types)

    for name, output, raw in zip(arrays, as_json, as_binary, strict=True):
        assert output["datatype"] == types[name]
        assert output["data"] == numbers[name].ravel().tolist(), name
        assert raw == arrays[name].tobytes(), name


async def binary_infer(client: Client, arrays: dict[str, Any], types: dict[str, str]) -> list[bytes]:
    """Send and receive everything as binary data; gives the outputs' bytes."""
    inputs = [
        {
            "name": name,
            "datatype": types[name],
            "shape": list(array.shape),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    head = orjson.dumps({"parameters": {"binary_data_output": True}, "inputs": inputs})
    body = head + b"".join(array.tobytes() for array in arrays.values())
    answer = await client.infer(body, {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200, answer.raw
    length = int(answer.headers["Inference-Header-Content-Length"])
    rest, parts = answer.raw[length:], []
    for output in orjson.loads(answer.raw[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        parts.append(rest[:size])
        rest = rest[size:]
    assert not rest
    return parts


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        ({}, "inputs: Field required"),
        ({"inputs": []}, "inputs: List should have at least 1 item"),
        ({"inputs": [{"name": "images"}]}, "inputs.0.shape: Field required"),
        ({"inputs": [tensor("pixels", "FP32", [1.0])]}, "no such input; it has images"),
        ({"inputs": [tensor("images", "FP64", [0.0] * 64, [1, 1, 8, 8])]}, "expected FP32 [-1, 1, 8, 8]"),
        (images([0.0] * 64, [1, 64]), "got FP32 [1, 64]"),
        (images([0.0] * 63, [1, 1, 8, 8]), "expected 64 values for shape [1, 1, 8, 8], got 63"),
        (images([0.0] * 64, [0, 1, 8, 8]), "any size from 1"),
        (images(["a"] * 64, [1, 1, 8, 8]), "expected numbers for FP32, got 'a'"),
        (images([[1.0], [1.0, 2.0]], [1, 1, 8, 8]), "ragged"),
        (
            {**ONE, "outputs": [{"name": "label"}]},
            "output 'label': the model has no such output",
        ),
    ],
)
async def test_what_was_expected_and_what_came(shared: Shared, body: Any, words: str) -> None:
    answer = await shared("digits").infer(body)

    assert answer.status == 400
    assert words in answer.error


async def test_values_that_the_model_refuses_are_a_clients_error(shared: Shared) -> None:
    answer = await shared("mixed").infer(mixed(100))

    assert answer.status == 422
    assert "expected >= 0 and < 100, but got 100" in answer.error


@pytest.mark.parametrize("path", ["v2/models/other", f"{MODEL}/versions/2", "v2/models/other/ready"])
async def test_another_model_or_version_is_not_here(shared: Shared, path: str) -> None:
    answer = await shared("digits").get(path)

    assert answer.status == 404
    assert f"this server has '{NAME}', version '1'" in answer.error


async def test_the_body_of_paddle_serving(shared: Shared, digits: dict[str, Any]) -> None:
    client = shared("digits")
    feed = [{"images": image.ravel().tolist()} for image in digits["images"][:2]]
    name = (await client.get(MODEL)).json["outputs"][0]["name"]

    answer = await client.post(f"{NAME}/prediction", {"feed": feed, "fetch": [name]})
    missing = await client.post(f"{NAME}/prediction", {"feed": [{"image": [1]}], "fetch": [name]})

    np.testing.assert_allclose(answer.json["result"][name], digits["answers"][:2], rtol=1e-4, atol=1e-5)
    assert missing.status == 400
    assert "feed[0]: input 'images' is missing; expected FP32 [-1, 1, 8, 8]" in missing.error


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "nowhere", 404, None),
        ("GET", "v2/models/digits/nothing", 404, None),
        ("POST", "v2/health/live", 405, "GET,HEAD"),
        ("GET", f"{MODEL}/infer", 405, "POST"),
    ],
)
async def test_unknown_paths_and_methods_are_refused_as_everything_is(
    shared: Shared, method: str, path: str, status: int, allow: str | None
) -> None:
    client = shared("digits")

    async with client.session.request(method, f"{client.url}/{path}") as answer:
        assert answer.status == status
        assert f"{method} /{path}" in (await answer.json())["error"]
        assert answer.headers.get("Allow") == allow


async def test_a_body_that_cannot_be_decoded_is_the_clients_fault(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits")

    badly_packed = await runtime.infer(b"not gzip", {"Content-Encoding": "gzip"})
    packed = await runtime.infer(gzip.compress(orjson.dumps(ONE)), {"Content-Encoding": "gzip"})

    assert badly_packed.status == 400
    assert "body: cannot be read" in badly_packed.error
    assert packed.status == 200
    assert "Traceback" not in runtime.log


async def test_json_has_a_lower_limit_than_binary_tensors(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", MAX_BODY_MIB=2, MAX_JSON_MIB=1)
    array = np.zeros((6000, 1, 8, 8), np.float32)

    json = await runtime.infer(b" " * array.nbytes)
    binary = await binary_infer(runtime, {"images": array}, {"images": "FP32"})
    long_head = await runtime.infer(b" " * array.nbytes, {"Inference-Header-Content-Length": "1048577"})

    assert json.status == 413
    assert "at most 1048576 bytes of JSON are accepted, and 2097152 with binary tensors" in json.error
    assert len(binary[0]) == 6000 * 10 * 4
    assert long_head.status == 413
    assert "Inference-Header-Content-Length: 1048577; at most 1048576" in long_head.error


async def test_what_requests_hold_together_is_limited(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "digits", MAX_BODY_MIB=1, MAX_JSON_MIB=1, MAX_PENDING_MIB=1)
    array = np.zeros((2500, 1, 8, 8), np.float32)
    large = orjson.dumps(images(array.tolist()))

    async def pieces() -> Any:
        for at in range(0, len(large), 65_536):
            yield large[at : at + 65_536]

    async def held() -> bool:
        return await runtime.metric("paddlewheel_runtime_pending_bytes") == array.nbytes

    with runtime.busy():
        first = asyncio.create_task(runtime.infer(large))
        await eventually(held, what="the first is with the model")
        announced = await runtime.infer(large)
        async with runtime.session.post(f"{runtime.url}/{MODEL}/infer", data=pieces()) as unannounced:
            assert unannounced.status == 503

    assert announced.status == 503
    assert announced.headers["Retry-After"] == "1"
    assert f"requests hold {array.nbytes} of 1048576 bytes already" in announced.error
    assert (await first).status == 200
    assert (await runtime.infer(large)).status == 200


async def test_a_body_over_the_limit_is_refused_with_the_limit(start: Start, models: Path) -> None:
    runtime = await start(models / "digits", MAX_BODY_MIB=1)

    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    announced = await runtime.infer(b" " * 1_048_577)
    async with runtime.session.post(f"{runtime.url}/{MODEL}/infer", data=pieces()) as unannounced:
        assert unannounced.status == 413

    assert announced.status == 413
    assert "at most 1048576" in announced.error


async def test_metrics_have_the_listed_names(shared: Shared) -> None:
    from paddle_runtime.metrics import NAMES

    client = shared("digits")
    assert (await client.infer(ONE)).status == 200

    text = (await client.get_own("metrics")).raw.decode()

    for name in NAMES:
        assert f"# TYPE {name}" in text, name
    for phase in ("download", "load", "warmup"):
        assert f'paddlewheel_runtime_cold_start_seconds{{phase="{phase}"}}' in text
