"""Runs saved models with several settings: `python run_matrix.py FOLDER NAME...`.

Prints a line of JSON for each model and number of threads: how much of oneDNN was used, the largest
difference from Paddle's own answers, and the faults of the uses of oneDNN before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from paddle_runtime.orders import Load, Prepare
from paddle_runtime.paddle_model import PaddleModel


def main() -> None:
    """One process for all models, because Paddle takes seconds to import."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        ending = "pdmodel" if name.startswith("legacy/") else "json"
        files = Load(*(str(folder / name / f"model.{end}") for end in (ending, "pdiparams")))
        expected = np.load(folder / f"{name}.npz")
        for threads in (1, 2):
            model = PaddleModel(files, Prepare("cpu", threads, 1))
            warmed = model.warm_up({}, tries_joining=True)
            found = [model.run({"image": expected[f"image{number}"]}) for number in (0, 1)]
            answers = [next(iter(outputs.values())) for outputs in found]
            differences = [np.abs(answer - expected[f"answer{n}"]).max() for n, answer in enumerate(answers)]
            line = {
                "name": name,
                "threads": threads,
                "onednn": warmed.onednn,
                "faults": warmed.faults,
                "joins": warmed.signature.joins,
                "difference": float(max(differences)),
            }
            sys.stdout.write(json.dumps(line) + "\n")


main()
