"""`paddlewheel dev`: the inner loop. Control plane, NATS and the services as local processes, in seconds."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paddlewheel.cli.ending import end_early
from paddlewheel.cli.output import Format, Output, print_json, print_line
from paddlewheel.cli.processes import ProcessTable
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.table import Table, print_table
from paddlewheel.cli.target import Target, embedded_cluster, explicit_choice, own_cluster
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.cluster import down, up
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.devcluster.state import home

CLUSTER = "dev"
SERVICES = {
    "job-controller": "job_controller",
    "dataset-controller": "dataset_controller",
    "trigger-controller": "trigger_controller",
    "serving-controller": "serving_controller",
}

_SERVED = {"bus-installer": "paddlewheel.bus.installer", **SERVICES}
"""Processes that have an HTTP port."""

app = typer.Typer(
    add_completion=False,
    help="""The inner loop: services as local processes.

[bold]Examples[/bold]

[cyan]paddlewheel dev up --fake-nodes 3[/cyan]  control plane, NATS and services, in seconds

[cyan]paddlewheel dev logs job-controller -f[/cyan]  follow the log of a process

[cyan]paddlewheel dev down[/cyan]  stop all processes and remove their data
""",
    no_args_is_help=True,
)


@app.command("up")
def dev_up(
    fake_nodes: Annotated[int, typer.Option(min=0, help="Number of nodes simulated by kwok.")] = 0,
    kubeconfig: Annotated[str, typer.Option(help="Use the cluster of this file's current context.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Start a control plane, NATS, the services, and kwok if requested.

    With --kubeconfig, the CRDs and the services of this checkout are used on that cluster, which must have no
    other controllers of Paddlewheel. KUBECONFIG and ~/.kube/config are not used.
    """
    typer.echo(f"cluster: {explicit_choice(kubeconfig, f'embedded cluster {CLUSTER}')}", err=True)
    with progress_reporter("dev", quiet=output is Format.JSON) as report:
        kubeconfig = _control_plane(kubeconfig, fake_nodes, report)
        table = _table()
        report("NATS and services", 0.9)
        nats, *ports = _ports(1 + len(_SERVED))
        _start_nats(table, nats)
        _start_services(table, kubeconfig, f"nats://127.0.0.1:{nats}", ports)
    _print_status(output)


@app.command("status")
def dev_status(output: Output = Format.TEXT) -> None:
    """Show the processes and their logs; exit code 1 when one has ended."""
    _print_status(output)
    if not all(process.alive for process in _table().recorded()):
        raise typer.Exit(1)


@app.command("logs")
def dev_logs(
    name: Annotated[str, typer.Argument(help="Process name, as `dev status` lists it.")],
    lines: Annotated[int, typer.Option("--lines", min=1, help="Number of lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines too.")] = False,
) -> None:
    """Print the log of a process."""
    process = next((p for p in _table().recorded() if p.name == name), None)
    if process is None:
        known = ", ".join(p.name for p in _table().recorded()) or "none: run `paddlewheel dev up`"
        raise typer.BadParameter(f"no process {name!r}; known processes: {known}")
    if follow:
        tail = subprocess.run(["tail", "-n", str(lines), "-f", process.log], check=False)
        if tail.returncode == -signal.SIGPIPE:
            end_early()
        return
    with Path(process.log).open(errors="replace") as log:
        sys.stdout.writelines(deque(log, maxlen=lines))


@app.command("down")
def dev_down() -> None:
    """Stop the processes and remove the control plane and its data."""
    for process in _table().stop_all():
        print_line(f"ended {process.name} (pid {process.pid})")
    down(CLUSTER)
    shutil.rmtree(_folder(), ignore_errors=True)


def _folder() -> Path:
    return home() / "dev"


def _table() -> ProcessTable:
    return ProcessTable(_folder())


def _control_plane(own: str, fake_nodes: int, report: Report) -> str:
    if own:
        where = own_cluster(str(Path(own).absolute()), "--kubeconfig")
    else:
        up(ClusterSpec(name=CLUSTER, control_plane_only=True, fake_nodes=fake_nodes), report)
        where = embedded_cluster(CLUSTER)
    asyncio.run(_apply_crds(where))
    return where.kubeconfig


async def _apply_crds(where: Target) -> None:
    await where.check()
    crds = str(repo_file("deploy/charts/paddlewheel/files/crds"))
    await where.tools.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", crds)


def _ports(count: int) -> list[int]:
    """Distinct ports. The first one is for NATS, and stays the same until `dev down`.

    They are found in one call: no process listens on them yet, so a second call could find the same port.
    """
    record = _folder() / "nats" / "port"
    found = free_ports(count)
    kept = int(record.read_text()) if record.exists() else found[0]
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(str(kept))
    return [kept, *[port for port in found if port != kept]][:count]


def _start_nats(table: ProcessTable, port: int) -> None:
    store = _folder() / "nats"
    table.start(
        "nats",
        [tool("nats-server"), "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(store)],
        os.environ,
    )


def _start_services(table: ProcessTable, kubeconfig: str, nats_url: str, ports: Sequence[int]) -> None:
    for (service, module), port in zip(_SERVED.items(), ports, strict=True):
        prefix = service.replace("-", "_").upper()
        settings = {f"{prefix}_NATS_URL": nats_url, f"{prefix}_HTTP_PORT": str(port)}
        env = {**os.environ, "KUBECONFIG": kubeconfig, **settings}
        table.start(service, [sys.executable, "-m", module], env)


def _print_status(output: Format) -> None:
    rows = [{"name": p.name, "pid": p.pid, "alive": p.alive, "log": p.log} for p in _table().recorded()]
    if output is Format.JSON:
        print_json(rows)
        return
    table = Table(("process", "pid", "state", "log"), wraps={"log"}, states={"state"}, right={"pid"})
    for row in rows:
        state = "running" if row["alive"] else "ended"
        table.add_row(str(row["name"]), str(row["pid"]), state, str(row["log"]))
    print_table(table)
