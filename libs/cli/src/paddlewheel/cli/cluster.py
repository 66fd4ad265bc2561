"""`paddlewheel cluster`: a real Kubernetes on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from paddlewheel.cli.image_source import archive_of
from paddlewheel.cli.output import NAME_VARIABLE, Format, Output, print_json, print_line, print_styled
from paddlewheel.cli.progress import progress_reporter
from paddlewheel.cli.table import Table, print_table
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.cluster import down, opened, up
from paddlewheel.devcluster.spec import ADDONS, DEFAULT_RANGE, ClusterSpec
from paddlewheel.devcluster.status import RUNNING, ClusterStatus, list_clusters, status

app = typer.Typer(
    add_completion=False,
    help="""A real Kubernetes on this machine.

[bold]Examples[/bold]

[cyan]paddlewheel cluster up --nodes 3[/cyan]  start it, or restart it with all its objects

[cyan]paddlewheel cluster up --with knative[/cyan]  with Knative Serving, also on a running cluster

[cyan]export KUBECONFIG=$(paddlewheel cluster kubeconfig)[/cyan]  then kubectl and helm use it

[cyan]paddlewheel cluster list -o json[/cyan]  all clusters and their state

[cyan]paddlewheel cluster down[/cyan]  delete it and everything in it
""",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option("--name", envvar=NAME_VARIABLE, help="The cluster's name.")]

Addons = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="ADDON", help=f"Install an add-on: {' or '.join(ADDONS)}; repeatable."),
]


@app.command("up")
def cluster_up(
    name: Name = "demo",
    nodes: Annotated[int, typer.Option("--nodes", help="Number of real nodes, 1 to 15.")] = 2,
    control_plane_only: Annotated[bool, typer.Option("--control-plane-only", help="No nodes.")] = False,
    fake_nodes: Annotated[int, typer.Option("--fake-nodes", help="Number of nodes simulated by kwok.")] = 0,
    address_range: Annotated[str, typer.Option("--address-range", help="Private range.")] = DEFAULT_RANGE,
    addons: Addons = None,
    strict_owners: Annotated[
        bool, typer.Option("--strict-owners", help="Check finalizers of owners, like OpenShift.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Start a cluster, or restart it with all its objects. The first start builds its programs.

    Add-ons are installed on a new or a running cluster, and updated by the same command:

        paddlewheel cluster up --with gateway   HTTPRoutes, answered by Traefik at the URL of `status`

        paddlewheel cluster up --with knative   Knative Serving, reached through the same gateway
    """
    spec = ClusterSpec(
        name, nodes, control_plane_only, fake_nodes, address_range, tuple(addons or ()), strict_owners
    )
    with progress_reporter(f"cluster {name}", quiet=output is Format.JSON) as report:
        up(spec, report)
    cluster_status(name, output)


@app.command("status")
def cluster_status(name: Name = "demo", output: Output = Format.TEXT) -> None:
    """Show the processes of a cluster; exit code 1 unless all of them run."""
    seen = status(name)
    if output is Format.JSON:
        print_json(asdict(seen))
    else:
        _print_cluster(seen)
    if seen.state != RUNNING:
        raise typer.Exit(1)


@app.command("list")
def cluster_list(output: Output = Format.TEXT) -> None:
    """List all clusters of the current user."""
    seen = list_clusters()
    if output is Format.JSON:
        print_json([asdict(cluster) for cluster in seen])
        return
    table = Table(
        ("name", "state", "nodes", "fake nodes", "add-ons", "address", "kubeconfig"),
        wraps={"kubeconfig"},
        drops=("fake nodes", "add-ons", "kubeconfig", "address", "nodes"),
        states={"state"},
        right={"nodes", "fake nodes"},
    )
    for cluster in seen:
        counts = (str(cluster.nodes), str(cluster.fake_nodes))
        row = (*counts, ", ".join(addon.name for addon in cluster.addons), cluster.address)
        table.add_row(cluster.name, cluster.state, *row, cluster.kubeconfig)
    print_table(table)


@app.command("down")
def cluster_down(name: Name = "demo") -> None:
    """Delete a cluster and everything in it."""
    print_line(f"cluster {name} deleted" if down(name) else f"no cluster {name}")


@app.command("load")
def cluster_load(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE|ARCHIVE...")],
    name: Name = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Load images onto every node, so that pods can use them without a registry.

    An image is a docker or OCI archive, an image of the local docker or podman, or an image of Paddlewheel:

        docker build -t team/train:1 . && paddlewheel cluster load team/train:1

        paddlewheel cluster load train.tar --name two
    """
    cluster = opened(name)
    loaded: list[str] = []
    with progress_reporter(f"cluster {name}", quiet=output is Format.JSON) as report:
        for image in images:
            with archive_of(image, report) as archive:
                loaded += cluster.load_image(archive, report)
    if output is Format.JSON:
        print_json({"cluster": name, "images": loaded})
        return
    for image in loaded:
        print_line(f"{image} is on every node of cluster {name}")
        if image.endswith(":latest"):
            print_line("  Kubernetes pulls :latest again by default; set `imagePullPolicy: IfNotPresent`")


@app.command("build")
def cluster_build(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Programs to build; default: all."),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Build the programs of clusters ahead of time; otherwise the first cluster builds them.

    Programs that were built are kept, once per machine and version:

        paddlewheel cluster build kubernetes kwok
    """
    known = {module.name: module for module in binaries.ALL}
    if unknown := sorted({*(names or ())} - {*known}):
        raise typer.BadParameter(f"no program {', '.join(unknown)}; there are: {', '.join(known)}")
    with progress_reporter("cluster programs", quiet=output is Format.JSON) as report:
        built = binaries.ensure(tuple(known[name] for name in names or known), report)
    if output is Format.JSON:
        print_json({name: str(path) for name, path in built.paths.items()})
        return
    for name, path in built.paths.items():
        print_line(f"{name}  {path}")


@app.command("kubeconfig")
def cluster_kubeconfig(name: Name = "demo") -> None:
    """Print the path of the kubeconfig: export KUBECONFIG=$(paddlewheel cluster kubeconfig)."""
    print_line(str(opened(name).kubeconfig))


def _print_cluster(seen: ClusterStatus) -> None:
    state = "green" if seen.state == RUNNING else "red"
    print_styled("cluster ", (seen.name, "bold"), ": ", (seen.state, state))
    print_line(f"API server at {seen.address}:6443, the host as {seen.gateway}")
    print_line(f"export KUBECONFIG={seen.kubeconfig}")
    for addon in seen.addons:
        print_styled(f"{addon.name}: ", ("ready", "green") if addon.ready else ("not ready", "red"))
    if url := next((addon.url for addon in seen.addons), ""):
        print_line(f"routes answer at {url}, by host name: curl -H 'Host: NAME' {url}")
    table = Table(("process", "place", "ready", "restarts"), states={"ready"}, right={"restarts"})
    for process in seen.processes:
        ready = "yes" if process.ready else "no"
        table.add_row(process.name, process.place, ready, str(process.restarts))
    print_table(table)
    print_line(f"logs in {Path(seen.kubeconfig).parent}/logs and nodes/*/logs")
