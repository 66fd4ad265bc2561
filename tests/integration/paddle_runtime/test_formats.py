"""Models in both formats, with operations that Paddle's oneDNN can and cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.integration.paddle_runtime.conftest import Runtime, Start, tensor

PARTIAL = "without onednn_placement_pass"
WITH_LISTS_OF_FLOATS = {"nearest", "bilinear", "bicubic"}
"""The models with an operation that Paddle 3.3.1 cannot run with oneDNN in the format `.json`."""
MATRIX = (
    *("nearest", "bilinear", "bicubic", "transposed", "classifier", "recognizer", "attention"),
    *("legacy/nearest", "legacy/bilinear", "legacy/transposed"),
)


async def answered(runtime: Runtime, models: Path, name: str) -> None:
    """Whether the answers for two sizes of images are Paddle's own."""
    expected = np.load(models / f"{name}.npz")
    for number in (0, 1):
        image = expected[f"image{number}"]
        answer = await runtime.infer({"inputs": [tensor("image", "FP32", image.tolist())]})
        assert answer.status == 200, answer.raw
        (output,) = answer.json["outputs"]
        found = np.reshape(output["data"], output["shape"])
        np.testing.assert_allclose(found, expected[f"answer{number}"], rtol=1e-4, atol=1e-5)


async def test_a_detector_in_the_new_format_is_served_on_a_cpu(start: Start, models: Path) -> None:
    """Paddle#77340: with Paddle's default settings it fails."""
    runtime: Runtime = await start(models / "nearest")

    await answered(runtime, models, "nearest")

    assert f'"onednn":"{PARTIAL}"' in runtime.log
    assert "ConvertPirAttribute2RuntimeAttribute" in runtime.log


@pytest.mark.long
async def test_a_detector_in_the_old_format_uses_onednn(start: Start, models: Path) -> None:
    runtime: Runtime = await start(models / "legacy" / "nearest")

    await answered(runtime, models, "legacy/nearest")

    assert "less of oneDNN" not in runtime.log


@pytest.mark.long
def test_formats_operations_and_threads(models: Path) -> None:
    """All models answer as Paddle does, and only models that need it run with less of oneDNN."""
    program = Path(__file__).with_name("run_matrix.py")
    command = [sys.executable, str(program), str(models), *MATRIX]
    env = {**os.environ, "GLOG_minloglevel": "2"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]

    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    assert [(line["name"], line["threads"]) for line in lines] == [(n, t) for n in MATRIX for t in (1, 2)]
    for line in lines:
        assert line["difference"] < 1e-4, line
        assert line["onednn"] == (PARTIAL if line["name"] in WITH_LISTS_OF_FLOATS else "on"), line
