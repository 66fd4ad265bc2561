"""`paddlewheel images`: build the container images into the local cache, with progress."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from paddlewheel.cli.progress import progress_reporter

images_app = typer.Typer(help="Container images, built without any registry.", no_args_is_help=True)


@images_app.command("build")
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Image names; none = all.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """Build images as archives that `paddlewheel cluster` and `ctr images import` take; unchanged ones are kept."""
    from paddlewheel.devcluster.images import build_images

    with progress_reporter("images", quiet=output == "json") as report:
        built = build_images(names or None, report)
    if output == "json":
        Console(soft_wrap=True).print_json(data={name: str(path) for name, path in built.items()})
        return
    table = Table("image", "archive", "MiB")
    for name, path in built.items():
        table.add_row(name, str(path), f"{path.stat().st_size / 2**20:.0f}")
    Console().print(table)
