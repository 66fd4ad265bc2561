"""From a bare machine to a cluster with Paddlewheel installed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paddlewheel.cli import install
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.stage import timed_stage
from paddlewheel.cli.demo.view import View
from paddlewheel.cli.images import build_all
from paddlewheel.cli.target import Target, target, uses_own_cluster
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.cluster import up
from paddlewheel.devcluster.doctor import examine, mend
from paddlewheel.devcluster.images import IMAGES, content_tag
from paddlewheel.devcluster.spec import ClusterSpec


async def prepare_cluster(
    options: DemoOptions, view: View, outcome: Outcome, *, values: Sequence[str] = ()
) -> Target:
    """Provide what is missing: machine, cluster, images, chart (with additional chart `values`).

    Images are built while the cluster's programs compile; with KUBECONFIG set, the user's cluster must
    already be able to pull the images.
    """
    rollout = "" if uses_own_cluster() else await _embedded(options, view, outcome)
    where = target(options.name)
    async with timed_stage("install", view, outcome):
        await install.install_chart(where.tools, view.progress, rollout=rollout, values=values)
    return where


async def _embedded(options: DemoOptions, view: View, outcome: Outcome) -> str:
    """The cluster with all images loaded; returns a text that changes with any image."""
    async with timed_stage("machine", view, outcome):
        await asyncio.to_thread(_fix_machine, view)
    building = asyncio.create_task(asyncio.to_thread(build_all, list(IMAGES), _no_report))
    try:
        async with timed_stage("programs", view, outcome):
            await asyncio.to_thread(binaries.ensure, binaries.NODE_MODULES, view.progress)
        async with timed_stage("images", view, outcome):
            view.progress("building", 0.0)
            archives = await building
    finally:
        await end(building)
    async with timed_stage("cluster", view, outcome):
        spec = ClusterSpec(name=options.name, nodes=options.nodes)
        await asyncio.to_thread(up, spec, view.progress, images=tuple(archives.values()))
    return "-".join(content_tag(archive) for archive in archives.values())


def _fix_machine(view: View) -> None:
    """Install what is missing.

    Raises:
        Permanent: something is still missing; the message gives each remedy.
    """
    if all(check.ok for check in examine()):
        return
    mend(examine(), lambda text: view.progress(text, 0.5))
    if missing := [f"{check.name}: {check.remedy}" for check in examine() if not check.ok]:
        raise Permanent("MachineLacks", "; ".join(missing))


def _no_report(_text: str, _fraction: float) -> None:
    """Two bars at once would overwrite each other."""
