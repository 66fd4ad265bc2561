"""`paddlewheel images`: build the container images into the local cache, with progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from paddlewheel.cli.output import Format, Output, console, print_json
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.repo import repo_file
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.image_archive import write_pause_archive
from paddlewheel.devcluster.images import IMAGES, ImageProgress, build_images, default_cache

PAUSE = "pause"
"""The gate in front of a job's pods; the embedded cluster includes it, other clusters pull it."""

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def images() -> None:
    """Container images, built without a registry.

    [bold]Examples[/bold]

    [cyan]paddlewheel images build[/cyan]  all of them, as archives; unchanged ones are kept

    [cyan]paddlewheel images build job-controller -o json[/cyan]  one, and where its archive is
    """


@app.command("build")
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Image names; none = all.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Build images as archives that `ctr images import` takes; unchanged ones are kept."""
    wanted = names or [*IMAGES, PAUSE]
    with progress_reporter("images", quiet=output == Format.JSON) as report:
        built = build_all([name for name in wanted if name != PAUSE], report)
        if PAUSE in wanted:
            built[PAUSE] = _pause_archive(report)
    if output == Format.JSON:
        print_json({name: str(path) for name, path in built.items()})
        return
    table = Table("image", "archive", "MiB")
    for name, path in built.items():
        table.add_row(name, str(path), f"{path.stat().st_size / 2**20:.0f}")
    console().print(table)


def build_all(names: Sequence[str], report: Report) -> dict[str, Path]:
    """Build what is missing of these images; `report` receives the current one and the finished share."""
    done: set[str] = set()

    def hear(progress: ImageProgress) -> None:
        if progress.step in ("cached", "done"):
            done.add(progress.image)
        report(f"{progress.image}: {progress.step}", len(done & set(names)) / len(names))

    return build_images(names, hear, repository=repo_file("uv.lock").parent)


def _pause_archive(report: Report) -> Path:
    program = binaries.ensure((binaries.PAUSE,), report).path("pause")
    folder = default_cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{program.parent.name}.tar"
    write_pause_archive(program, archive)
    return archive
