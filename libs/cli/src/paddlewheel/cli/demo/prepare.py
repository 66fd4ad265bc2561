"""Steps from a bare machine to a cluster with Paddlewheel installed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from paddlewheel.cli import install
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.stage import timed_stage
from paddlewheel.cli.demo.view import View
from paddlewheel.cli.images import PAUSE, build_archives
from paddlewheel.cli.progress import Report
from paddlewheel.cli.target import Target, embedded_cluster, own_cluster
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.addons.ready import NAMESPACES
from paddlewheel.devcluster.cluster import up
from paddlewheel.devcluster.doctor import examine, install_missing
from paddlewheel.devcluster.images import IMAGES, content_tag
from paddlewheel.devcluster.node import MODELS
from paddlewheel.devcluster.spec import ClusterSpec

T = TypeVar("T")
_EMBEDDED = (
    # Images are loaded onto the nodes; there is no registry to ask for newer ones.
    'servingController.pullPolicy="IfNotPresent"',
    f'servingController.gateway="{NAMESPACES["gateway"]}/paddlewheel"',
    f'servingController.modelCache="{MODELS}"',
    # JuiceFS' own default: the kubelets of an embedded cluster evict no pods when a disk is full.
    'datasetController.extraEnv.DATASET_CONTROLLER_RUNTIME_FREE_SPACE_RATIO="0.1"',
    # For the examples of docs/tasks/triggers.md.
    'triggerController.webhook.sources=[{"name": "images", "namespaces": ["paddle-demo"]}]',
    f'servingController.figures="http://gateway-metrics.{NAMESPACES["gateway"]}:9100/metrics"',
)
"""Values of the chart for an embedded cluster."""


async def prepare_cluster(
    options: DemoOptions, view: View, outcome: Outcome, *, values: Sequence[str] = ()
) -> Target:
    """Prepare the machine, the cluster, the images and the chart (with additional chart `values`).

    Images are built while the programs of the cluster compile. A cluster of the user must be able to pull
    the images.
    """
    rollout = ""
    if options.kubeconfig:
        where = own_cluster(options.kubeconfig, "--kubeconfig")
        await where.check()
    else:
        rollout = await _embedded(options, view, outcome)
        where = embedded_cluster(options.name)
        values = (*values, *_EMBEDDED)
    outcome.cluster = str(where)
    async with timed_stage("install", view, outcome):
        await install.install_chart(where.tools, view.progress, rollout=rollout, values=values)
    return where


async def _embedded(options: DemoOptions, view: View, outcome: Outcome) -> str:
    """Start the cluster with all images loaded; return a text that changes with any image."""
    async with timed_stage("machine", view, outcome):
        await _in_thread(_fix_machine, view.progress)
    building = asyncio.create_task(_in_thread(partial(build_archives, [*IMAGES, PAUSE]), _no_report))
    try:
        async with timed_stage("programs", view, outcome):
            await _in_thread(partial(binaries.ensure, binaries.NODE_MODULES), view.progress)
        async with timed_stage("images", view, outcome):
            view.progress("building", 0.0)
            archives = await building
    finally:
        await end(building)
    async with timed_stage("cluster", view, outcome):
        spec = ClusterSpec(name=options.name, nodes=options.nodes, addons=("gateway",))
        await _in_thread(partial(up, spec, images=tuple(archives.values())), view.progress)
    return "-".join(content_tag(archive) for archive in archives.values())


async def _in_thread(work: Callable[[Report], T], report: Report) -> T:
    """Run blocking work in a thread. When this is cancelled, the work ends at its next report."""
    cancelled = threading.Event()

    def report_on(text: str, fraction: float) -> None:
        if cancelled.is_set():
            raise Permanent("Interrupted", text)
        report(text, fraction)

    working = asyncio.ensure_future(asyncio.to_thread(work, report_on))
    try:
        return await asyncio.shield(working)
    finally:
        cancelled.set()
        # It may hold locks and a cluster that is half started; both are released when it ends.
        await asyncio.wait((working,))
        _ = working.exception()


def _fix_machine(report: Report) -> None:
    """Install what is missing.

    Raises:
        Permanent: something is still missing; the message lists what to do.
    """
    if all(check.ok for check in examine()):
        return
    install_missing(examine(), lambda text: report(text, 0.5))
    if missing := [f"{check.name}: {check.remedy}" for check in examine() if not check.ok]:
        raise Permanent("MachineNotReady", "; ".join(missing))


def _no_report(_text: str, _fraction: float) -> None:
    """Draw nothing: two bars at once would overwrite each other."""
