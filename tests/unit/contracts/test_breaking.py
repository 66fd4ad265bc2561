"""buf itself refuses contracts that break a subscriber of the last release."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddlewheel.contracts.gen.protos import ROOT

PROTOS = ROOT / "protos"
JOBS = "paddlewheel/jobs/v1/jobs.proto"
DATASETS = "paddlewheel/datasets/v1/datasets.proto"
CACHE = "paddlewheel/cache/v1/cache.proto"


def breaking(protos: Path) -> str:
    """What buf complains of, "" when nothing."""
    buf = shutil.which("buf", path=str(Path(sys.executable).parent))
    assert buf, "buf is missing: install the PyPI package buf-bin"
    command = [buf, "breaking", "--against", "released/contracts.json"]
    done = subprocess.run(command, cwd=protos, capture_output=True, text=True)
    # 100 = there are complaints; anything else means that buf could not judge.
    assert done.returncode in (0, 100), done.stderr
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROTOS, tmp_path / "protos"))


def edit(protos: Path, file: str, old: str, new: str) -> None:
    path = protos / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} is to stand once in {file}"
    path.write_text(text.replace(old, new))


def test_the_contracts_break_nobody() -> None:
    assert breaking(PROTOS) == ""


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        pytest.param(JOBS, "  double seconds = 3;\n", "", 'field "3" with name "seconds"', id="deleted"),
        pytest.param(
            JOBS,
            "  double seconds = 3;\n",
            '  reserved 3;\n  reserved "seconds";\n',
            'field "3" with name "seconds"',
            id="deleted, number and name reserved",
        ),
        pytest.param(JOBS, "double seconds = 3;", "double seconds = 13;", 'field "3"', id="renumbered"),
        pytest.param(JOBS, "double seconds = 3;", "double duration = 3;", "seconds", id="renamed"),
        pytest.param(JOBS, "double seconds = 3;", "int64 seconds = 3;", "type", id="another type"),
        pytest.param(
            JOBS,
            "map<string, double> results = 4;",
            "repeated double results = 4;",
            "results",
            id="another cardinality",
        ),
        pytest.param(
            DATASETS, "message SampleSetWarmed {", "message SampleSetHeated {", "SampleSetWarmed", id="fact"
        ),
        pytest.param(CACHE, "  RUN_PHASE_CANCELLED = 4;\n", "", "4", id="enum word deleted"),
        pytest.param(
            CACHE,
            "RUN_PHASE_CANCELLED = 4;",
            "RUN_PHASE_STOPPED = 4;",
            "RUN_PHASE_CANCELLED",
            id="enum word renamed",
        ),
    ],
)
def test_what_breaks_a_subscriber_is_refused(
    file: str, old: str, new: str, complaint: str, copy: Path
) -> None:
    edit(copy, file, old, new)
    said = breaking(copy)
    assert complaint in said
    assert file in said


def test_a_context_that_is_gone_is_refused(copy: Path) -> None:
    (copy / DATASETS).unlink()
    assert DATASETS in breaking(copy)


def test_what_only_adds_is_let_through(copy: Path) -> None:
    edit(copy, JOBS, "  double seconds = 3;\n", "  double seconds = 3;\n  string mood = 99;\n")
    edit(copy, JOBS, "message JobDeleted {", "message JobApplauded {}\n\nmessage JobDeleted {")
    assert breaking(copy) == ""
