"""`import paddlewheel` from built wheels and from the source tree, with the SDK and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
"""They share the built wheels."""

LIBS = Path(__file__).parents[3] / "libs"
WHEELS = ("core", "contracts", "bus", "sdk")
WHERE = "import paddlewheel.core.errors as e; print(e.__file__)"
USES = "import paddlewheel; print(paddlewheel.events.__module__)"
HAS = "import paddlewheel; print(hasattr(paddlewheel, 'events'))"
LAZY = "import sys, paddlewheel.core.errors; print('paddlewheel.sdk' in sys.modules)"
SUBSCRIBES = "import paddlewheel; paddlewheel.events(job='resnet', url='nats://x')"


def uv(*arguments: str | Path) -> None:
    program = shutil.which("uv") or shutil.which("uv", path=str(LIBS.parent / "build/uv/bin"))
    assert program, "uv is missing: `make venv` brings it"
    ended = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Built from copies, so that the tree stays clean."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in WHEELS:
        source = shutil.copytree(LIBS / name, folder / "source" / name)
        uv("build", "--wheel", "--no-sources", "--out-dir", folder / "dist", source)
    return {name: next((folder / "dist").glob(f"paddlewheel_{name}-*.whl")) for name in WHEELS}


def installed(wheels: dict[str, Path], folder: Path, *names: str) -> Path:
    """A folder as site-packages has it."""
    uv("pip", "install", "--target", folder, "--no-deps", *(wheels[name] for name in names))
    return folder


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """A program that sees these folders and other people's packages, but nothing of this tree."""
    others = sysconfig.get_paths()["purelib"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), others])}
    # -S: the .pth files of the editable installs are not read.
    return subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, timeout=60
    )


def said(code: str, *path: Path) -> str:
    ended = run(code, *path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_wheels_in_one_folder_give_the_sdk_and_all_else(wheels: dict[str, Path], tmp_path: Path) -> None:
    site = installed(wheels, tmp_path / "site", *WHEELS)
    assert said(USES, site) == "paddlewheel.sdk.subscription"
    assert said(WHERE, site) == str(site / "paddlewheel/core/errors.py")
    assert said(LAZY, site) == "False"
    assert (
        "job: 'resnet' is not the name of an object; pass \"namespace/name\"" in run(SUBSCRIBES, site).stderr
    )


def test_without_the_sdk_the_libraries_are_there_and_events_is_not(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    site = installed(wheels, tmp_path / "site", "core", "contracts", "bus")
    assert said(WHERE, site) == str(site / "paddlewheel/core/errors.py")
    assert said(HAS, site) == "False"


@pytest.mark.parametrize("sdk_first", [True, False])
def test_wheels_and_source_folders_mix(wheels: dict[str, Path], tmp_path: Path, sdk_first: bool) -> None:
    site = installed(wheels, tmp_path / "site", "sdk")
    sources = [LIBS / name / "src" for name in ("core", "contracts", "bus")]
    path = [site, *sources] if sdk_first else [*sources, site]
    assert said(USES, *path) == "paddlewheel.sdk.subscription"
    assert said(WHERE, *path) == str(LIBS / "core/src/paddlewheel/core/errors.py")


def test_the_source_tree_itself_has_events_and_every_library() -> None:
    code = "import paddlewheel, paddlewheel.kube, paddlewheel.cli; print(paddlewheel.events)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("<function events"), ended.stderr
