"""Saves the models of these tests, and what Paddle itself answers: `python saved_models.py FOLDER`.

A program of its own, for Paddle takes seconds to import and warns while it does.
"""

# mypy: disable-error-code="misc, no-untyped-def"

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

PIXELS, CLASSES, SAMPLES = 64, 10, 64
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64"),
    *("uint8", "float16", "bfloat16", "float32", "float64"),
)


class Digits(paddle.nn.Layer):
    """A small MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = paddle.nn.Linear(PIXELS, 32)
        self.out = paddle.nn.Linear(32, CLASSES)

    def forward(self, images):
        return self.out(paddle.nn.functional.relu(self.hidden(images.flatten(1))))


class Mixed(paddle.nn.Layer):
    """Three inputs and three outputs of different datatypes, one dimension free beside the first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = paddle.nn.Embedding(100, 4)

    def forward(self, numbers, ids, flag):
        summed = self.words(ids).sum(axis=1)
        score = numbers.sum(axis=1, keepdim=True) + summed.sum(axis=1, keepdim=True)
        return score, ids.max(axis=1), paddle.logical_not(flag)


class Every(paddle.nn.Layer):
    """Gives each input back with one dimension more."""

    def forward(self, b, i8, i16, i32, i64, u8, f16, bf16, f32, f64):
        return [
            paddle.reshape(given, [-1, 2, 1]) for given in (b, i8, i16, i32, i64, u8, f16, bf16, f32, f64)
        ]


class Mixing(paddle.nn.Layer):
    """Its rows depend on each other, so requests must not be joined."""

    def forward(self, x):
        return paddle.nn.functional.softmax(x, axis=0)


class Centred(paddle.nn.Layer):
    """So do these, and only where their integers differ."""

    def forward(self, ids):
        numbers = ids.cast("float32")
        return numbers - numbers.mean(axis=0)


class Shares(paddle.nn.Layer):
    """So do these, in small numbers."""

    def forward(self, x):
        return x / x.sum(axis=0) * 1e-4


class Hungry(paddle.nn.Layer):
    """Takes as much memory as the input asks for."""

    def forward(self, sizes):
        return sizes + paddle.zeros([sizes.max() + 1], "int64").sum()


class Wide(paddle.nn.Layer):
    """Answers much more than it is asked."""

    def forward(self, x):
        return paddle.tile(x, [1, 100_000])


class Fixed(paddle.nn.Layer):
    """Takes exactly two rows."""

    def forward(self, x):
        return x * 2


class Slow(paddle.nn.Layer):
    """A run takes milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.step = paddle.nn.Linear(256, 256)

    def forward(self, x):
        for _ in range(100):
            x = paddle.tanh(self.step(x))
        return x


class Vision(paddle.nn.Layer):
    """Halves an image with a convolution, and enlarges it again, as detectors and segmenters do."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.shrink = paddle.nn.Conv2D(3, 8, 3, stride=2, padding=1)
        self.norm = paddle.nn.BatchNorm2D(8)
        self.head = paddle.nn.Conv2D(8, 1, 3, padding=1)

    def forward(self, image):
        small = paddle.nn.functional.relu(self.norm(self.shrink(image)))
        return self.head(paddle.nn.functional.interpolate(small, scale_factor=2, mode=self.mode))


class Transposed(Vision):
    """Enlarges it with a transposed convolution."""

    def __init__(self) -> None:
        super().__init__("none")
        self.enlarge = paddle.nn.Conv2DTranspose(8, 8, 2, stride=2)

    def forward(self, image):
        return self.head(self.enlarge(paddle.nn.functional.relu(self.norm(self.shrink(image)))))


class Classifier(Vision):
    """Gives the probabilities of four classes."""

    def __init__(self) -> None:
        super().__init__("none")
        self.classes = paddle.nn.Linear(8, 4)

    def forward(self, image):
        small = paddle.nn.functional.relu(self.norm(self.shrink(image)))
        return paddle.nn.functional.softmax(self.classes(small.mean(axis=[2, 3])), axis=-1)


class Recognizer(Vision):
    """Reads an image from left to right."""

    def __init__(self) -> None:
        super().__init__("none")
        self.read = paddle.nn.LSTM(8, 8)

    def forward(self, image):
        columns = paddle.nn.functional.relu(self.shrink(image)).mean(axis=2)
        return self.read(columns.transpose([0, 2, 1]))[0]


class Attention(Vision):
    """Compares the columns of an image."""

    def __init__(self) -> None:
        super().__init__("none")
        self.encode = paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)

    def forward(self, image):
        columns = paddle.nn.functional.relu(self.shrink(image)).mean(axis=2)
        return self.encode(columns.transpose([0, 2, 1]))


VISION: dict[str, Any] = {
    "nearest": lambda: Vision("nearest"),
    "bilinear": lambda: Vision("bilinear"),
    "bicubic": lambda: Vision("bicubic"),
    "transposed": Transposed,
    "classifier": Classifier,
    "recognizer": Recognizer,
    "attention": Attention,
}
IMAGES = [InputSpec([None, 3, None, None], "float32", "image")]
LEGACY_VISION = ("nearest", "bilinear", "transposed")
"""The models that Paddle 3 can still write in the older format."""

MODELS: dict[str, tuple[Any, list[InputSpec]]] = {
    "digits": (Digits, [InputSpec([None, 1, 8, 8], "float32", "images")]),
    "mixed": (
        Mixed,
        [
            InputSpec([None, 3], "float32", "numbers"),
            InputSpec([None, None], "int64", "ids"),
            InputSpec([None, 1], "bool", "flag"),
        ],
    ),
    "every": (Every, [InputSpec([None, 2], dtype, f"x_{dtype}") for dtype in DTYPES]),
    "mixing": (Mixing, [InputSpec([None, 3], "float32", "x")]),
    "centred": (Centred, [InputSpec([None, 3], "int64", "ids")]),
    "shares": (Shares, [InputSpec([None, 3], "float32", "x")]),
    "hungry": (Hungry, [InputSpec([None, 1], "int64", "sizes")]),
    "wide": (Wide, [InputSpec([None, 1], "float32", "x")]),
    "fixed": (Fixed, [InputSpec([2, 3], "float32", "x")]),
    "slow": (Slow, [InputSpec([None, 256], "float32", "x")]),
}


def save(folder: Path, name: str) -> None:
    """Save one model, and for the digits and images its answers."""
    kind, inputs = MODELS[name] if name in MODELS else (VISION[name], IMAGES)
    model = kind()
    model.eval()
    chance = np.random.default_rng(0)
    answers: dict[str, Any] = {}
    if name == "digits":
        images = chance.random((SAMPLES, 1, 8, 8), dtype=np.float32)
        answers = {"images": images, "answers": model(paddle.to_tensor(images)).numpy()}
    elif name in VISION:
        for number, size in enumerate(((1, 3, 32, 64), (2, 3, 64, 32))):
            image = chance.random(size, dtype=np.float32)
            answers[f"image{number}"] = image
            answers[f"answer{number}"] = model(paddle.to_tensor(image)).numpy()
    paddle.jit.save(model, str(folder / name / "model"), input_spec=inputs)
    if answers:
        np.savez(folder / f"{name}.npz", **answers)


def main() -> None:
    """With FLAGS_enable_pir_api=0 Paddle writes the older format, `.pdmodel`."""
    paddle.seed(0)
    folder = Path(sys.argv[1])
    legacy = os.environ["FLAGS_enable_pir_api"] == "0"  # noqa: SIM112 - Paddle's own name
    for name in ("digits", *LEGACY_VISION) if legacy else (*MODELS, *VISION):
        save(folder / "legacy" if legacy else folder, name)


main()
