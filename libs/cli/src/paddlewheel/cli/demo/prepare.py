"""From a bare machine to a cluster with Paddlewheel on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from paddlewheel.cli import install
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.stage import timed_stage
from paddlewheel.cli.demo.view import View
from paddlewheel.cli.target import Target, target, uses_own_cluster
from paddlewheel.devcluster import ClusterSpec, attach, up
from paddlewheel.devcluster.doctor import fix_all
from paddlewheel.devcluster.images import build_images



async def prepare_cluster(options: DemoOptions, view: View, outcome: Outcome) -> Target:
    """Bring up what is missing: machine, cluster, images, chart.

    Images are built while the cluster's binaries compile; with KUBECONFIG set, the user's cluster must
    already be able to pull the images.
    """
    if not uses_own_cluster():
        await _embedded(options, view, outcome)
    where = target(options.name)
    async with timed_stage("install", view, outcome):
        await install.install_chart(where.tools, view.progress)
    return where


async def _embedded(options: DemoOptions, view: View, outcome: Outcome) -> None:
    async with timed_stage("machine", view, outcome):
        await asyncio.to_thread(fix_all, view.progress)
    building = asyncio.create_task(asyncio.to_thread(build_images, None, _quiet))
    try:
        async with timed_stage("cluster", view, outcome):
            spec = ClusterSpec(name=options.name, nodes=options.nodes)
            await asyncio.to_thread(up, spec, view.progress)
        async with timed_stage("images", view, outcome):
            archives = await _watched(building, view)
            await _load(options.name, archives, view)
    finally:
        building.cancel()
        await asyncio.gather(building, return_exceptions=True)


async def _watched(building: asyncio.Task[dict[str, Path]], view: View) -> dict[str, Path]:
    view.progress("building", 0.0)
    return await building


async def _load(name: str, archives: dict[str, Path], view: View) -> None:
    cluster = attach(name)
    for done, (image, archive) in enumerate(archives.items()):
        view.progress(f"loading {image}", done / len(archives))
        await asyncio.to_thread(cluster.load_image, archive)


def _quiet(_text: str, _fraction: float) -> None:
    """Two bars at once would overwrite each other."""


