"""Bodies of requests and answers: the Open Inference Protocol, and Paddle Serving's."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from paddle_runtime.domain import oip, prediction
from paddle_runtime.domain.model import ANY, Array, Datatype, Identity, Refused, Signature, TensorSpec

SIGNATURE = Signature(
    (TensorSpec("a", Datatype.FP32, (ANY, 2)), TensorSpec("b", Datatype.INT64, (ANY,))),
    (TensorSpec("y", Datatype.FP32, (ANY, 2)), TensorSpec("z", Datatype.BF16, (ANY,))),
)
ONE = Identity("m", "1")
A = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
B = {"name": "b", "datatype": "INT64", "shape": [1], "data": [7]}
OUTPUTS: dict[str, Array] = {"y": np.array([[1.5, 2.5]], np.float32), "z": np.array([0x3F80], np.uint16)}


def parse(body: Any, length: int | None = None) -> oip.Inference:
    return oip.parse(body if isinstance(body, bytes) else orjson.dumps(body), length, SIGNATURE)


def test_inputs_are_given_in_the_models_order() -> None:
    assert list(parse({"inputs": [B, A]}).tensors) == ["a", "b"]


def test_null_is_like_a_member_that_is_not_there() -> None:
    null = {"inputs": [{**A, "parameters": None}, B], "id": None, "parameters": None, "outputs": None}

    inference = parse(null)

    assert [wanted.spec.name for wanted in inference.wanted] == ["y", "z"]
    assert "id" not in orjson.loads(oip.reply(ONE, inference, OUTPUTS).body)


def test_binary_and_json_inputs_in_one_request() -> None:
    binary = {**A, "parameters": {"binary_data_size": 8}}
    del binary["data"]
    head = orjson.dumps({"inputs": [B, binary]})

    inference = parse(head + np.array([3, 4], np.float32).tobytes(), len(head))

    assert inference.tensors["a"].tolist() == [[3.0, 4.0]]
    assert inference.tensors["b"].tolist() == [7]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": [A]}, "input 'b': missing; expected INT64 [-1]"),
        ({"inputs": [A, A, B]}, "input 'a': given twice"),
        ({"inputs": [A, B], "outputs": [{"name": "y"}, {"name": "y"}]}, "output 'y': named twice"),
        ({"inputs": [{**A, "shape": [1] * 65}, B]}, "inputs.0.shape: List should have at most 64 items"),
        ({"inputs": [{**A, "shape": [-1, 2]}, B]}, "inputs.0.shape.0"),
        ({"inputs": [{**A, "shape": ["1", 2]}, B]}, "inputs.0.shape.0"),
        ({"inputs": [{**A, "parameters": {"binary_data_size": 8}}, B]}, "not both"),
        ([], "body: Input should be"),
    ],
)
def test_faults_of_a_request_are_named(body: Any, words: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(body)

    assert words in refused.value.message
    assert refused.value.status == 400


@pytest.mark.parametrize("size", [9, -1, True, "8", [[]] * 100])
def test_a_binary_size_beyond_the_body_is_refused(size: Any) -> None:
    head = orjson.dumps({"inputs": [{**{k: A[k] for k in ("name", "datatype", "shape")},
                                     "parameters": {"binary_data_size": size}}]})  # fmt: skip

    with pytest.raises(Refused, match="8 bytes are left"):
        parse(head + b"12345678", len(head))


def test_bytes_that_belong_to_no_tensor_are_refused() -> None:
    head = orjson.dumps({"inputs": [A, B]})

    with pytest.raises(Refused, match="3 bytes follow"):
        parse(head + b"123", len(head))


def test_a_header_length_beyond_the_body_is_refused() -> None:
    with pytest.raises(Refused, match="Inference-Header-Content-Length: 9999"):
        parse({"inputs": [A, B]}, 9999)


def test_answers_as_json_and_as_binary() -> None:
    asked = {
        "id": "7",
        "inputs": [A, B],
        "outputs": [{"name": "z"}, {"name": "y", "parameters": {"binary_data": True}}],
    }

    reply = oip.reply(ONE, parse(asked), OUTPUTS)

    assert reply.json_length is not None
    head = orjson.loads(reply.body[: reply.json_length])
    assert head == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [
            {"name": "z", "datatype": "BF16", "shape": [1], "data": [1.0]},
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        ],
    }
    assert reply.body[reply.json_length :] == OUTPUTS["y"].tobytes()


def test_an_answer_of_json_only_has_no_header_length() -> None:
    reply = oip.reply(ONE, parse({"inputs": [A, B]}), OUTPUTS)

    assert reply.json_length is None
    assert [output["name"] for output in orjson.loads(reply.body)["outputs"]] == ["y", "z"]


def predict(body: Any) -> prediction.Prediction:
    return prediction.parse(orjson.dumps(body), SIGNATURE)


def test_samples_are_stacked_and_take_the_inputs_type() -> None:
    asked = predict({"feed": [{"a": [[1, 2]], "b": 3}, {"a": [3, 4], "b": [4]}], "fetch": ["y"]})

    assert asked.tensors["a"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert asked.tensors["a"].dtype == np.float32
    assert asked.tensors["b"].tolist() == [3, 4]
    answer = orjson.loads(prediction.reply(asked, OUTPUTS))
    assert answer == {"result": {"y": [[1.5, 2.5]]}}


@pytest.mark.parametrize("fetch", [None, []])
def test_without_fetch_all_outputs_are_given(fetch: Any) -> None:
    asked = predict({"feed": {"a": [1, 2], "b": 3}, "fetch": fetch})

    assert [spec.name for spec in asked.fetch] == ["y", "z"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "body: expected {"),
        ({"fetch": ["y"]}, "body: expected {"),
        ({"feed": []}, "feed: expected a list of at least one object"),
        ({"feed": ["x"]}, "feed: expected a list of at least one object"),
        ({"feed": [{"a": [1, 2]}]}, "feed[0]: input 'b' is missing"),
        ({"feed": [{"a": [1, 2, 3], "b": 1}]}, "feed[0]: input 'a': expected 2 values of FP32 [2], got 3"),
        ({"feed": [{"a": [1, 2], "b": 1}], "fetch": "y"}, "fetch: expected a list of names"),
        ({"feed": [{"a": [1, 2], "b": 1}], "fetch": ["w"]}, "no such output; it has y, z"),
        ({"feed": [{"a": [1, 2], "b": 1}], "fetch": ["y", "y"]}, "output 'y': named twice"),
    ],
)
def test_faults_of_paddle_servings_body_are_named(body: Any, words: str) -> None:
    with pytest.raises(Refused) as refused:
        predict(body)

    assert words in refused.value.message


def test_samples_with_free_dimensions_must_agree() -> None:
    signature = Signature((TensorSpec("t", Datatype.INT64, (ANY, ANY)),), SIGNATURE.outputs)

    with pytest.raises(Refused, match="must have the same shape"):
        prediction.parse(orjson.dumps({"feed": [{"t": [1]}, {"t": [1, 2]}]}), signature)
