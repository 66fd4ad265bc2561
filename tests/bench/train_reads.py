"""One epoch of a small network over images: `python train_reads.py FOLDER RANK RANKS`; prints images/s.

A program of its own, for Paddle takes seconds to import.
"""

# mypy: disable-error-code="misc, no-untyped-def"

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset, DistributedBatchSampler

BATCH, EPOCH = 32, 1


class Images(Dataset):
    """Arrays of 108 x 108 x 3 bytes in one folder for each class, in the order of DatasetFolder."""

    def __init__(self, top: Path) -> None:
        self.files = sorted(top.glob("*/*.npy"))

    def __getitem__(self, index):
        path = self.files[index]
        image = np.load(path)[::4, ::4].astype("float32") / 255
        return image.transpose(2, 0, 1), np.int64(int(path.parent.name.removeprefix("c")))

    def __len__(self):
        return len(self.files)

    def forget(self) -> None:
        """Drop what the kernel has of them: only the cache of the node is to count."""
        for path in self.files:
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def train(images: Images, rank: int, ranks: int) -> float:
    """Images per second."""
    sampler = DistributedBatchSampler(images, BATCH, ranks, rank, shuffle=True)
    sampler.set_epoch(EPOCH)
    network = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3, stride=2),
        paddle.nn.ReLU(),
        paddle.nn.Flatten(),
        paddle.nn.Linear(8 * 13 * 13, 10),
    )
    optimizer = paddle.optimizer.SGD(0.01, parameters=network.parameters())
    seen, began = 0, time.monotonic()
    for pixels, labels in DataLoader(images, batch_sampler=sampler, num_workers=0):
        paddle.nn.functional.cross_entropy(network(pixels), labels).backward()
        optimizer.step()
        optimizer.clear_grad()
        seen += len(labels)
    return seen / (time.monotonic() - began)


paddle.set_device("cpu")
given = Images(Path(sys.argv[1]))
given.forget()
print(train(given, int(sys.argv[2]), int(sys.argv[3])))
