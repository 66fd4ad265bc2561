"""Paddle without a server: `paddle_floor.py save FOLDER`, or `call FOLDER SECONDS RATE`; prints figures.

A program of its own: the bench's process never imports Paddle.
"""

# mypy: disable-error-code="misc, no-untyped-def"

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.inference


class SmallNet(paddle.nn.Layer):
    """A convolutional network of the size of the digits example's."""

    def __init__(self) -> None:
        super().__init__()
        conv, relu = paddle.nn.Conv2D, paddle.nn.ReLU
        self.features = paddle.nn.Sequential(
            conv(1, 32, 3, padding=1), relu(), conv(32, 64, 3, padding=1), relu(), paddle.nn.MaxPool2D(2)
        )
        self.classify = paddle.nn.Sequential(
            paddle.nn.Flatten(), paddle.nn.Linear(1024, 128), relu(), paddle.nn.Linear(128, 10)
        )

    def forward(self, images):
        return self.classify(self.features(images))


def save(folder: Path) -> None:
    """Write the model as `model.json` and `model.pdiparams`."""
    model = SmallNet()
    model.eval()
    inputs = [paddle.static.InputSpec([None, 1, 8, 8], "float32", "images")]
    paddle.jit.save(model, str(folder / "model"), input_spec=inputs)


def call(folder: Path, seconds: float, rate: float) -> None:
    """Calls with one row each, as a program with the predictor in its process would make them.

    Args:
        rate: calls a second, each timed from when it was due; 0 = one after the other.
    """
    config = paddle.inference.Config(str(folder / "model.json"), str(folder / "model.pdiparams"))
    config.disable_glog_info()
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(1)
    predictor = paddle.inference.create_predictor(config)
    given = predictor.get_input_handle(predictor.get_input_names()[0])
    found = predictor.get_output_handle(predictor.get_output_names()[0])
    image = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    took: list[float] = []
    began = time.perf_counter()
    while (start := time.perf_counter()) - began < seconds:
        due = began + len(took) / rate if rate else start
        time.sleep(max(0.0, due - start))
        given.copy_from_cpu(image)
        predictor.run()
        found.copy_to_cpu()
        took.append(time.perf_counter() - due)
    print(json.dumps({"p95": float(np.quantile(took, 0.95)), "rate": len(took) / seconds}))


if sys.argv[1] == "save":
    save(Path(sys.argv[2]))
else:
    call(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
