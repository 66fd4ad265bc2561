"""`paddlewheel demo`: real images from an object store to a served model, every step a fact on the bus."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from paddlewheel.cli.demo.model import WANTED_ACCURACY, DemoOptions, Outcome
from paddlewheel.cli.demo.report import render_report
from paddlewheel.cli.demo.run import run_demo
from paddlewheel.cli.demo.view import open_view
from paddlewheel.cli.output import Format, Output, print_json
from paddlewheel.cli.target import explicit_choice

__all__ = ["DemoOptions", "Outcome", "app", "demo", "run_demo"]


app = typer.Typer(add_completion=False)


HELP = f"""Sync 1,797 handwritten digits into the cache, train on two nodes, serve, reject a bad version.

Exit code 0: every stage succeeded and the accuracy on held-out digits is at least {WANTED_ACCURACY} (with
fewer digits or epochs only the stages count).

[bold]Which cluster:[/bold] the one of --kubeconfig, else an embedded one that the demo starts. KUBECONFIG and
~/.kube/config are not used.

[bold]--kubeconfig:[/bold] only for a cluster without Paddlewheel. The chart's defaults are installed, the
nodes must already have the images as paddlewheel/<name>:dev, and the demo deletes all PaddleServices,
PaddleJobs, SampleJobs and SampleSets in namespace paddle-demo.

[bold]Examples[/bold]

[cyan]paddlewheel demo[/cyan]  everything on this machine; needs root

[cyan]paddlewheel demo --digits 300 --epochs 1 -o json[/cyan]  a quick run for scripts

[cyan]paddlewheel demo --kubeconfig ~/.kube/config[/cyan]  on your cluster, whose nodes have the images
"""


@app.command(help=HELP)
def demo(
    name: Annotated[str, typer.Option(help="Embedded cluster to use or start.")] = "demo",
    kubeconfig: Annotated[str, typer.Option(help="Use this file's current context instead.")] = "",
    nodes: Annotated[
        int, typer.Option(min=2, help="Nodes of the embedded cluster; the demo trains on two.")
    ] = 2,
    digits: Annotated[int, typer.Option(min=100, max=1797, help="Number of digits to use, of 1,797.")] = 1797,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 8,
    model_out: Annotated[Path, typer.Option(help="Folder that receives the trained model.")] = Path(
        "build/model"
    ),
    output: Output = Format.TEXT,
) -> None:
    """Run the demo and report. Users see `HELP`."""
    options = DemoOptions(name, kubeconfig, nodes, digits, epochs, model_out)
    if output is Format.TEXT:
        own = f"the demo's own, embedded cluster {name}"
        typer.echo(f"cluster: {explicit_choice(kubeconfig, own)}", err=True)
    with open_view(quiet=output is Format.JSON) as view:
        outcome = asyncio.run(run_demo(options, view))
    if output is Format.JSON:
        print_json(outcome.as_dict())
    else:
        render_report(outcome)
    raise typer.Exit(0 if outcome.success else 1)
