"""Partition i has exactly what Paddle's own sampler gives rank i, in the order of its reads."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cache_runtime.domain.model import File
from cache_runtime.domain.packed import PackedFiles
from cache_runtime.domain.sampler import BATCH, SamplerOrder, batches, samples_of, shuffled
from cache_runtime.domain.strategy import shares
from paddlewheel.contracts.generated.cache_v1 import SamplerOrder as AskedOrder
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.core.errors import Permanent

SAMPLES = ["a/1.npy", "a/b/2.npy", "a-b/3.npy", "a/10.npy", "z/é.npy", "a/b.npy"]
"""Between a directory and what is below it another may sort: `a`, `a-b`, `a/b`."""
OTHERS = ["README.md", "0.npy", "0.png", "a/labels.txt", "a/b/.npy.tmp", "a/noextension", "z/x.png.bak"]
IMAGES = ["a/2.png", "a/b/3.JPG", "z/0.webp", "z/.png", "a/c.jpeg", "a-b/0.Tif"]
NAMES = [*SAMPLES, *OTHERS, *IMAGES]
EXTENSIONS: list[list[str] | None] = [None, [".npy"], [".NPY", "png"], [""], ["labels.txt", ".bak"]]
"""Arguments of DatasetFolder; None = its default."""


def make_cases() -> list[dict[str, Any]]:
    random = Random(7)
    return [
        {
            "samples": random.choice((random.randint(1, 12), random.randint(1, 400), 3 * BATCH + 11)),
            "ranks": random.randint(1, 9),
            "batch_size": random.randint(1, 40),
            "shuffle": random.random() < 0.6,
            "epoch": random.choice((0, 1, random.randint(0, 2**31 - 1))),
        }
        for _ in range(200)
    ]


@pytest.fixture(scope="module")
def paddle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Paddle's answers."""
    folder = tmp_path_factory.mktemp("folder")
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    command = [sys.executable, str(Path(__file__).with_name("paddle_reads.py"))]
    asked = json.dumps({"cases": make_cases(), "folder": str(folder), "extensions": EXTENSIONS})
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def shares_of(samples: int, ranks: int, order: SamplerOrder) -> list[list[int]]:
    """The shares that Paddlewheel computes."""
    found: list[list[int]] = [[] for _ in range(ranks)]
    for batch in batches(PackedFiles(File(str(n), 1) for n in range(samples)), ranks, order):
        assert batch.partition is not None
        found[batch.partition] += [int(file.path) for file in batch.files]
    return found


def test_each_partition_has_what_its_rank_reads(paddle: dict[str, Any]) -> None:
    for case, expected in zip(make_cases(), paddle["reads"], strict=True):
        order = SamplerOrder(case["batch_size"], case["shuffle"], case["epoch"])
        assert shares_of(case["samples"], case["ranks"], order) == expected, case


@pytest.mark.parametrize("case", range(len(EXTENSIONS)))
@pytest.mark.parametrize("top", ["", "train"])
def test_samples_are_those_of_a_dataset_folder_in_its_order(
    paddle: dict[str, Any], top: str, case: int
) -> None:
    start = f"{top}/" if top else ""
    listed = (File(f"{start}{name}", 1) for name in sorted(NAMES))
    found = samples_of(listed, top, EXTENSIONS[case] or ())
    expected = paddle["files"][case]
    assert [file.path.removeprefix(start) for file in found.files] == expected
    assert found.ignored == len(NAMES) - len(expected)


def test_a_warmup_says_how_many_files_are_no_samples() -> None:
    files = [File(f"train/{name}", 1) for name in NAMES]
    asked = AskedOrder(batch_size=1, extensions=[".npy"])
    warmup = WarmupOperation(strategy="sampler", sampler=asked, paths=["train"])
    remarks = [batch.remark for batch in shares(warmup, files, 2, "run-1") if batch.remark]
    assert remarks == [
        "13 files were ignored, as DatasetFolder does: they are not below a class directory, or their names"
        " do not end with .npy"
    ]


def test_a_warmup_of_samples_only_has_no_remark() -> None:
    warmup = WarmupOperation(strategy="sampler", sampler=AskedOrder(batch_size=1))
    assert not any(batch.remark for batch in shares(warmup, [File("a/1.png", 1)], 2, "run-1"))


@pytest.mark.parametrize("strategy", ["sequence", "random", "sampler"])
def test_nothing_is_listed_before_the_first_batch_is_asked_for(strategy: str) -> None:
    """The event loop gets the batches from a thread; what is listed earlier would hold it up."""
    listed = iter([File("a/1.png", 1), File("a/2.png", 1)])
    shares(WarmupOperation(strategy=strategy), listed, 2, "run-1")
    assert len(list(listed)) == 2


def test_a_warmup_without_a_sample_fails_and_names_the_extensions() -> None:
    asked = AskedOrder(batch_size=1, extensions=[".png"])
    warmup = WarmupOperation(strategy="sampler", sampler=asked, paths=["train"])
    with pytest.raises(Permanent) as error:
        list(shares(warmup, [File(f"train/{name}", 1) for name in SAMPLES], 2, "run-1"))
    assert error.value.reason == "NoSamples"
    assert error.value.message.startswith(
        "warmupOptions.sampler.extensions: none of 6 files is a sample of DatasetFolder:"
    )


@pytest.mark.parametrize("first", [0, 1, 3])
def test_without_extensions_files_of_classes_are_samples_if_none_is_an_image(first: int) -> None:
    names = ["b/2.npy", "a/1.npy", "README"]
    found = samples_of(File(name, 1) for name in names)
    assert ([file.path for file in found.files], found.ignored) == (["a/1.npy", "b/2.npy"], 1)

    names.insert(first, "a/0.png")
    found = samples_of(File(name, 1) for name in names)
    assert ([file.path for file in found.files], found.ignored) == (["a/0.png"], 3)


def test_samples_are_numbered_so_in_whatever_order_they_are_listed() -> None:
    names = [
        f"{c}/{d}{n}.png"
        for c in ("a", "a-b", "é", "%FF")
        for d in ("", "b/", "b-c/")
        for n in ("x", "%25", "é")
    ]
    expected = sorted(names, key=lambda name: (name.split("/")[0], *name.rpartition("/")[::2]))
    Random(3).shuffle(names)
    found = samples_of(File(name, len(name)) for name in names).files
    assert list(found) == [File(name, len(name)) for name in expected]


@pytest.mark.slow
@pytest.mark.parametrize("directories", [1, 200])
def test_a_file_takes_little_memory_beside_its_path(directories: int) -> None:
    files = 20_000
    names = (f"{n * directories // files:06}/{n:06}.png" for n in range(files))
    warmup = WarmupOperation(strategy="sampler", sampler=AskedOrder(batch_size=64, shuffle=True))
    tracemalloc.start()
    try:
        assert (
            sum(len(batch.files) for batch in shares(warmup, map(File, names, repeat(1)), 4, "run-1"))
            == files
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / files < len("000000/000000.png") + 50


def test_all_ranks_get_their_first_files_early() -> None:
    files = PackedFiles(File(str(n), 1) for n in range(3 * BATCH + 11))
    assert [batch.partition for batch in batches(files, 2, SamplerOrder(32))] == [0, 1, 0, 1]


def test_an_empty_set_has_no_shares() -> None:
    assert list(batches(PackedFiles(), 3, SamplerOrder())) == []


@pytest.mark.parametrize("epoch", [0, 1, 2**31 - 1])
def test_the_shuffle_is_that_of_numpy(epoch: int) -> None:
    expected = list(range(5000))
    np.random.RandomState(epoch).shuffle(expected)
    assert shuffled(list(range(5000)), SamplerOrder(shuffle=True, epoch=epoch)) == expected


def test_a_ready_list_numbers_the_samples_itself() -> None:
    files = [File(name, 1) for name in ("c/z.png", "c/a.png", "m", "c/b.png")]
    asked = AskedOrder(batch_size=1)

    def first_share(warmup: WarmupOperation) -> list[str]:
        return [f.path for b in shares(warmup, files, 2, "run-1") if b.partition == 0 for f in b.files]

    assert first_share(WarmupOperation(strategy="sampler", sampler=asked, file="list")) == ["c/z.png", "m"]
    assert first_share(WarmupOperation(strategy="sampler", sampler=asked)) == ["c/a.png", "c/z.png"]
