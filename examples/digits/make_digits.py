"""Writes scikit-learn's 1,797 handwritten digits as PNG files, always with the same split.

Layout: `train/<label>/<index>.png` and `test/<label>/<index>.png`, 8 x 8 pixels, 8-bit grey; the index is the
position in scikit-learn's data set. Every fifth digit is held out: 1,437 for training, 360 for testing.

    python make_digits.py --output build/digits [--limit 200]
    python make_digits.py --request 25 > request.json
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

HELD_OUT_STEP = 5
GREY_LEVELS = 16
"""Largest pixel value in scikit-learn's data, which ranges from 0 to 16."""


def write_digits(target: Path, limit: int | None = None) -> Counter[str]:
    """Write the first `limit` digits (None: all) to `target`; returns the number of files per part.

    Raises:
        ValueError: limit is below 10, which would leave a part without digits.
    """
    if limit is not None and limit < 10:
        raise ValueError(f"--limit: {limit} is too small, the minimum is 10")
    data = load_digits()
    written: Counter[str] = Counter()
    for index, (pixels, label) in enumerate(zip(data.images[:limit], data.target[:limit], strict=True)):
        part = "test" if index % HELD_OUT_STEP == 0 else "train"
        path = target / part / str(label) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = np.round(pixels * (255 / GREY_LEVELS)).astype(np.uint8)
        Image.fromarray(grey).save(path)
        written[part] += 1
    return written


def request_for(index: int) -> str:
    """A request of the Open Inference Protocol for one digit, pixels from 0 to 1; its id is the label."""
    data = load_digits()
    pixels = (data.images[index] / GREY_LEVELS).tolist()
    image = {"name": "images", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": pixels}
    return json.dumps({"id": str(data.target[index]), "inputs": [image]})


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write scikit-learn's handwritten digits as PNG files.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="folder for train/ and test/")
    what.add_argument("--request", type=int, metavar="INDEX", help="print a request for a prediction instead")
    parser.add_argument("--limit", type=int, help="only the first N digits (at least 10)")
    arguments = parser.parse_args()
    if arguments.request is not None:
        print(request_for(arguments.request))
        return
    try:
        written = write_digits(arguments.output, arguments.limit)
    except ValueError as error:
        parser.error(str(error))
    print(f"{written['train']} digits for training, {written['test']} for testing, in {arguments.output}")


if __name__ == "__main__":
    main()
