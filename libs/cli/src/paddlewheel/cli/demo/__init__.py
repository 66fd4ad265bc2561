"""`paddlewheel demo`: real images from an object store to a trained model, every step a fact on the bus."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.report import render_report
from paddlewheel.cli.demo.run import run_demo
from paddlewheel.cli.demo.view import open_view

__all__ = ["DemoOptions", "Outcome", "app", "demo", "run_demo"]


app = typer.Typer(add_completion=False)


@app.command()
def demo(
    name: Annotated[
        str, typer.Option(help="Embedded cluster to use or start; ignored when KUBECONFIG is set.")
    ] = "demo",
    nodes: Annotated[
        int, typer.Option(min=2, help="Nodes of the embedded cluster; the demo trains on two.")
    ] = 2,
    digits: Annotated[int, typer.Option(min=100, max=1797, help="Number of digits to use, of 1,797.")] = 1797,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 8,
    model_out: Annotated[Path, typer.Option(help="Folder that receives the trained model.")] = Path(
        "build/model"
    ),
    output: Annotated[
        str, typer.Option("--output", "-o", help="text (live view) or json (for scripts).")
    ] = "text",
) -> None:
    """Sync 1,797 handwritten digits into the cache, warm two nodes, train on them, and report the results.

    Exit code 0: every stage succeeded and the accuracy on held-out digits is at least 0.95 (with fewer digits
    or epochs only the stages count).
    """
    options = DemoOptions(name=name, nodes=nodes, digits=digits, epochs=epochs, model_out=model_out)
    with open_view(quiet=output == "json") as view:
        outcome = asyncio.run(run_demo(options, view))
    if output == "json":
        sys.stdout.buffer.write(orjson.dumps(outcome.as_dict(), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        render_report(outcome, Console())
    raise typer.Exit(0 if outcome.success else 1)
