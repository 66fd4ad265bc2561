"""The files that Paddle reads, found in a process of its own: cases as JSON on stdin, answers on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from paddle.io import DistributedBatchSampler
from paddle.vision.datasets import DatasetFolder


def reads_of(case: dict[str, Any], rank: int) -> list[int]:
    """The samples of one rank in one epoch."""
    sampler = DistributedBatchSampler(
        range(case["samples"]), case["batch_size"], case["ranks"], rank, shuffle=case["shuffle"]
    )
    sampler.set_epoch(case["epoch"])
    return [index for batch in sampler for index in batch]


def files_of(folder: str, extensions: list[str] | None) -> list[str]:
    """The samples of DatasetFolder in their order; None = its default extensions."""
    samples = DatasetFolder(folder, extensions=extensions).samples
    return [str(Path(path).relative_to(folder)) for path, _ in samples]


asked = json.load(sys.stdin)
reads = [[reads_of(case, rank) for rank in range(case["ranks"])] for case in asked["cases"]]
files = [files_of(asked["folder"], extensions) for extensions in asked["extensions"]]
json.dump({"reads": reads, "files": files}, sys.stdout)
