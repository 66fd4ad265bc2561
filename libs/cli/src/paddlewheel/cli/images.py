"""`paddlewheel images`: build Paddlewheel's container images and load them onto embedded clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paddlewheel.cli.output import NAME_VARIABLE, Format, Output, print_json, print_line
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.table import Table, print_table
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.binaries import cache_dir
from paddlewheel.devcluster.cluster import ignore, opened
from paddlewheel.devcluster.image_archive import write_pause_archive
from paddlewheel.devcluster.images import (
    IMAGES,
    ImageProgress,
    archive_path,
    build_images,
    image_reference,
)
from paddlewheel.devcluster.state import names as cluster_names

PAUSE = "pause"
"""Image of the gate of a job's pods. The embedded cluster includes it, other clusters pull it."""
ALL = (*IMAGES, PAUSE)

Names = Annotated[
    list[str] | None, typer.Argument(help="Image names; default: all images except those of add-ons.")
]
OnCluster = Annotated[str, typer.Option("--name", envvar=NAME_VARIABLE, help="The embedded cluster.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def images() -> None:
    """Paddlewheel's container images, built and loaded without a registry.

    [bold]Examples[/bold]

    [cyan]paddlewheel images build[/cyan]  all images, as archives; unchanged ones are kept

    [cyan]paddlewheel images build job-controller -o json[/cyan]  one image, and the path of its archive

    [cyan]paddlewheel images load --name two[/cyan]  put all of them onto the nodes of an embedded cluster
    """


@app.command("build")
def build(names: Names = None, output: Output = Format.TEXT) -> None:
    """Build images as archives for `docker load` and `ctr images import`. Unchanged images are kept."""
    with progress_reporter("images", quiet=output is Format.JSON) as report:
        built = build_archives(names or ALL, report)
    if output is Format.JSON:
        print_json({name: str(path) for name, path in built.items()})
        return
    table = Table(("image", "archive", "MiB"), wraps={"archive"}, right={"MiB"})
    for name, path in built.items():
        table.add_row(name, str(path), _mebibytes(path))
    print_table(table)


@app.command("list")
def list_images(output: Output = Format.TEXT) -> None:
    """List Paddlewheel's images and everything loaded onto embedded clusters."""
    built = {image_reference(name): path for name in ALL if (path := _existing(name))}
    loaded = {name: opened(name).images() for name in cluster_names()}
    own = [image_reference(name) for name in ALL]
    repositories = {_repository(image) for image in own}
    others = {
        image for images in loaded.values() for image in images if _repository(image) not in repositories
    }
    rows = [
        {
            "image": image,
            "archive": str(built[image]) if image in built else None,
            "clusters": [name for name, images in loaded.items() if image in images],
        }
        for image in (*own, *sorted(others))
    ]
    if output is Format.JSON:
        print_json(rows)
        return
    table = Table(("image", "built, MiB", "loaded onto"), wraps={"loaded onto"}, right={"built, MiB"})
    for row in rows:
        image = str(row["image"])
        size = _mebibytes(built[image]) if image in built else "-"
        table.add_row(image, size, ", ".join(row["clusters"] or ()) or "-")
    print_table(table)


@app.command("load")
def load(names: Names = None, cluster: OnCluster = "demo", output: Output = Format.TEXT) -> None:
    """Load Paddlewheel's own images onto every node of an embedded cluster; missing ones are built first.

    For your own images: `paddlewheel cluster load`.
    """
    where = opened(cluster)
    with progress_reporter("images", quiet=output is Format.JSON) as report:
        archives = build_archives(names or ALL, report)
        loaded = [image for path in archives.values() for image in where.load_image(path, report)]
    if output is Format.JSON:
        print_json({"cluster": cluster, "images": loaded})
        return
    for image in loaded:
        print_line(f"{image} is on every node of cluster {cluster}")


def build_archives(names: Sequence[str], report: Report) -> dict[str, Path]:
    """Build the missing ones of these images, pause included."""
    built = build_all([name for name in names if name != PAUSE], report)
    return built | ({PAUSE: _pause_archive(report)} if PAUSE in names else {})


def build_all(names: Sequence[str], report: Report) -> dict[str, Path]:
    """Build the missing ones of these images; `report` receives the current image and the finished share."""
    done: set[str] = set()

    def take(progress: ImageProgress) -> None:
        if progress.step in ("cached", "done"):
            done.add(progress.image)
        report(f"{progress.image}: {progress.step}", len(done & set(names)) / len(names))

    return build_images(names, take, repository=repo_file("uv.lock").parent)


def _existing(name: str) -> Path | None:
    """The archive of the current content of an image, or None."""
    if name != PAUSE:
        path = archive_path(name, repo_file("uv.lock").parent)
    elif binaries.is_built(binaries.PAUSE):
        path = _pause_path(_pause_program(ignore))
    else:
        return None
    return path if path.exists() else None


def _repository(image: str) -> str:
    return image.rpartition(":")[0]


def _mebibytes(path: Path) -> str:
    return f"{path.stat().st_size / 2**20:.0f}"


def _pause_archive(report: Report) -> Path:
    program = _pause_program(report)
    archive = _pause_path(program)
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_pause_archive(program, archive)
    return archive


def _pause_program(report: Report) -> Path:
    return binaries.ensure((binaries.PAUSE,), report).path("pause")


def _pause_path(program: Path) -> Path:
    return cache_dir() / "images" / f"{program.parent.name}.tar"
