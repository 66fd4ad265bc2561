"""Trains a small convolutional network on PNG files of digits, with Paddle's collective mode.

Every worker runs this file; job-controller gives each its identity (PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM,
PADDLE_TRAINER_ENDPOINTS). Rank 0 prints a line `progress {...}` after every epoch, saves the model and writes
its metrics to the container's termination message, from which they reach the PaddleJob's `status.results`.

Exit codes: 0 trained, 1 failure, 2 wrong arguments or no data, 3 accuracy below `--min-accuracy`.
"""
# Paddle is in the image, not on the developer's machine.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from PIL import Image

NO_DATA, NOT_ACCURATE = 2, 3
Number = int | float


@dataclass(frozen=True)
class Place:
    """This worker's rank among its peers."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this worker reports for all."""
        return self.rank == 0


class Digits(paddle.io.Dataset):
    """One part of the data: files `<part>/<label>/<index>.png`, read on every access."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.png"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        path = self.files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image, dtype="float32") / 255
        return pixels[np.newaxis], np.int64(path.parent.name)


class SmallNet(paddle.nn.Layer):
    """Two convolutions and two dense layers for images of 1 x 8 x 8; about 140,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = paddle.nn.Sequential(
            paddle.nn.Conv2D(1, 32, 3, padding=1),
            paddle.nn.ReLU(),
            paddle.nn.Conv2D(32, 64, 3, padding=1),
            paddle.nn.ReLU(),
            paddle.nn.MaxPool2D(2),
        )
        self.classes = paddle.nn.Sequential(
            paddle.nn.Flatten(),
            paddle.nn.Linear(64 * 4 * 4, 128),
            paddle.nn.ReLU(),
            paddle.nn.Linear(128, 10),
        )

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.classes(self.features(images))


def join_peers() -> Place:
    """Join the other workers, if there are any.

    Paddle needs PADDLE_CURRENT_ENDPOINT, this worker's entry in the list of endpoints.
    """
    place = Place(
        int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    )
    if place.size > 1:
        endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
        os.environ.setdefault("PADDLE_CURRENT_ENDPOINT", endpoints[place.rank])
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
        dist.init_parallel_env()
    return place


def sum_over_peers(values: Sequence[float], place: Place) -> list[float]:
    """Sum each value over all workers."""
    total = paddle.to_tensor(list(values), dtype="float64")
    if place.size > 1:
        dist.all_reduce(total)
    return [float(value) for value in total.numpy()]


def train_epoch(
    model: paddle.nn.Layer, loader: paddle.io.DataLoader, optimizer: paddle.optimizer.Optimizer, place: Place
) -> float:
    """Train one epoch on this worker's shard; returns the mean loss over all workers' samples."""
    model.train()
    loss_sum, seen = 0.0, 0
    for images, labels in loader():
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        loss_sum += float(loss) * len(labels)
        seen += len(labels)
    total, count = sum_over_peers([loss_sum, seen], place)
    return total / count


@paddle.no_grad()
def evaluate(model: paddle.nn.Layer, held_out: Digits, place: Place) -> float:
    """Accuracy on all held-out digits; each worker evaluates every size-th of them."""
    model.eval()
    right = 0
    mine = list(range(place.rank, len(held_out), place.size))
    for start in range(0, len(mine), 256):
        samples = [held_out[index] for index in mine[start : start + 256]]
        answers = model(paddle.to_tensor(np.stack([image for image, _ in samples]))).argmax(axis=1).numpy()
        right += int((answers == np.array([label for _, label in samples])).sum())
    return sum_over_peers([right], place)[0] / len(held_out)


def fit(
    model: SmallNet, train: Digits, held_out: Digits, options: argparse.Namespace, place: Place
) -> dict[str, Number]:
    """Train all epochs; returns the metrics of the last one."""
    peers = paddle.DataParallel(model) if place.size > 1 else model
    optimizer = paddle.optimizer.Adam(options.learning_rate, parameters=peers.parameters())
    sampler = paddle.io.DistributedBatchSampler(
        train, options.batch_size, place.size, place.rank, shuffle=True
    )
    loader = paddle.io.DataLoader(train, batch_sampler=sampler)
    figures: dict[str, Number] = {}
    for epoch in range(1, options.epochs + 1):
        began = time.monotonic()
        sampler.set_epoch(epoch)
        loss = train_epoch(peers, loader, optimizer, place)
        figures = {"epoch": epoch, "epochs": options.epochs, "loss": round(loss, 4)}
        figures["accuracy"] = round(evaluate(model, held_out, place), 4)
        figures["seconds"] = round(time.monotonic() - began, 2)
        if place.leads:
            print("progress", json.dumps(figures), flush=True)
    return figures


def save(model: SmallNet, output: Path) -> None:
    """Save the model in a format that Paddle Inference and `paddle.jit.load` can read."""
    output.mkdir(parents=True, exist_ok=True)
    model.eval()
    images = paddle.static.InputSpec([None, 1, 8, 8], "float32", "images")
    paddle.jit.save(model, str(output / "digits"), input_spec=[images])
    print("model written to", output, flush=True)


def leave_message(path: Path, content: Mapping[str, Number]) -> None:
    """Write the metrics to the termination message; does nothing outside Kubernetes."""
    if path.exists():
        path.write_text(json.dumps(content))


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("/data"), help="folder with train/ and test/")
    parser.add_argument("--output", type=Path, help="folder for the model, written by rank 0; default: none")
    parser.add_argument(
        "--epochs", type=int, default=int(os.environ.get("EPOCHS", "8")), help="default: $EPOCHS, or 8"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="per worker")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="exit with 3 below this")
    parser.add_argument("--message", type=Path, default=Path("/dev/termination-log"))
    return parser.parse_args()


def main() -> int:
    """Train, evaluate, save; returns the exit code."""
    options = parse_arguments()
    train, held_out = Digits(options.data / "train"), Digits(options.data / "test")
    if not train.files or not held_out.files:
        print(
            f"--data: {options.data} has {len(train)} train and {len(held_out)} test files", file=sys.stderr
        )
        return NO_DATA
    place = join_peers()
    print(
        f"rank {place.rank} of {place.size}: {len(train)} files to train, {len(held_out)} to test", flush=True
    )
    paddle.seed(options.seed)
    model = SmallNet()
    figures = fit(model, train, held_out, options, place)
    if place.leads:
        if options.output:
            save(model, options.output)
        results = {name: figures[name] for name in ("accuracy", "loss", "epochs")}
        leave_message(options.message, {**results, "train_files": len(train)})
    return 0 if figures["accuracy"] >= options.min_accuracy else NOT_ACCURATE


if __name__ == "__main__":
    sys.exit(main())
