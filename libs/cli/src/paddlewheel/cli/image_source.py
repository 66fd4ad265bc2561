"""Archives of images: a file, one of Paddlewheel's own, or an export of the local docker or podman."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddlewheel.cli.images import PAUSE, build_archives
from paddlewheel.cli.progress import Report
from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.images import IMAGES, image_reference

_ENGINES = ("docker", "podman")
_SAVE_TIMEOUT_SECONDS = 900.0
_SUFFIXES = (".tar", ".tar.gz", ".tgz")


@contextmanager
def archive_of(image: str, report: Report) -> Iterator[Path]:
    """Yield the archive of an image. An archive exported from docker or podman is deleted afterwards.

    Raises:
        Permanent: NoSuchFile, NoSuchImage.
    """
    if Path(image).is_file():
        yield Path(image)
    elif own := own_image(image):
        yield build_archives([own], report)[own]
    else:
        with tempfile.TemporaryDirectory(prefix="paddlewheel-image-") as folder:
            archive = Path(folder, "image.tar")
            report(f"exporting {image}", 0.0)
            _export(image, archive)
            yield archive


def own_image(image: str) -> str | None:
    """`nats` for `nats`, `paddlewheel/nats:dev` and its full name; None for an image that is not ours."""
    for name in (*IMAGES, PAUSE):
        full = image_reference(name)
        if image in (name, full, full.partition("/")[2]):
            return name
    return None


def _export(image: str, archive: Path) -> None:
    if image.endswith(_SUFFIXES) or image.startswith((".", "/")):
        raise Permanent("NoSuchFile", f"{image}: no such file")
    engines = [path for name in _ENGINES if (path := shutil.which(name))]
    refusals = []
    for engine in engines:
        if not (refusal := _refusal(engine, image, archive)):
            return
        refusals.append(refusal)
    raise Permanent(
        "NoSuchImage",
        f"{image} is neither a file nor one of `paddlewheel images list`, "
        f"and cannot be exported ({'; '.join(refusals) or 'neither docker nor podman is installed'}). "
        f"Where it was built: `docker save {image} -o image.tar`; then `paddlewheel cluster load image.tar`",
    )


def _refusal(engine: str, image: str, archive: Path) -> str:
    """The reason why `engine` did not export the image; "" on success."""
    argv = (engine, "save", "--output", str(archive), "--", image)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_SAVE_TIMEOUT_SECONDS, check=False)
    if done.returncode == 0:
        return ""
    archive.unlink(missing_ok=True)
    return f"{Path(engine).name} save {image}: {done.stderr.strip()[-300:]}"
