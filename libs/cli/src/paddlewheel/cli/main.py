"""The `paddlewheel` command: one Typer app, one module for each group of commands."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape

from paddlewheel.cli import bus, demo, dev, dlq, doctor, events, images
from paddlewheel.cli.cluster import cluster_app
from paddlewheel.core import logging
from paddlewheel.core.errors import PaddlewheelError

app = typer.Typer(
    name="paddlewheel",
    help="PaddlePaddle on Kubernetes: training jobs, data sets, caches, and every step as an event.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster_app, name="cluster")
app.add_typer(dev.dev_app, name="dev")
app.add_typer(images.images_app, name="images")
app.add_typer(bus.bus_app, name="bus")
app.add_typer(dlq.dlq_app, name="dlq")
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("events", help=events.HELP)(events.events)


@app.callback()
def start() -> None:
    """Commands log warnings and errors to standard error."""
    logging.set_up("paddlewheel", "warning")


def main() -> None:
    """The console script: our own errors are one line with a remedy, never a traceback."""
    try:
        app()
    except PaddlewheelError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
