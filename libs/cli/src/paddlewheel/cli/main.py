"""The `paddlewheel` command: one Typer app, one module for each group of commands."""

from __future__ import annotations

import typer

from paddlewheel.cli import demo, dev, doctor, events, images
from paddlewheel.cli.cluster import cluster_app
from paddlewheel.core import logging

app = typer.Typer(
    name="paddlewheel",
    help="PaddlePaddle's whole life on Kubernetes: jobs, data sets, caches, and every step as an event.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster_app, name="cluster")
app.add_typer(dev.dev_app, name="dev")
app.add_typer(images.images_app, name="images")
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("events")(events.events)


@app.callback()
def start() -> None:
    """Everything a command logs goes to standard error, warnings and worse only."""
    logging.set_up("paddlewheel", "warning")


if __name__ == "__main__":
    app()
