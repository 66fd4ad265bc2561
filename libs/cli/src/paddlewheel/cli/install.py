"""Installs the chart of Paddlewheel with Helm."""

from __future__ import annotations

from collections.abc import Sequence

from paddlewheel.cli.progress import Report
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.tools import Tools

SYSTEM_NAMESPACE = "paddle-system"
"""Namespace of the chart."""


async def install_chart(
    tools: Tools, report: Report, *, rollout: str = "", values: Sequence[str] = ()
) -> None:
    """Install or upgrade the release `paddlewheel` and wait until every pod of it is ready.

    Args:
        rollout: any text; a new one restarts the services (images rebuilt under the same tag).
        values: further `key=JSON` settings of the chart.

    Raises:
        Permanent: Helm failed, or a pod was not ready within three minutes.
    """
    report("chart, CRDs, NATS and controllers", 0.2)
    settings = [argument for value in values for argument in ("--set-json", value)]
    await tools.run(
        "helm", "upgrade", "--install", "paddlewheel", str(repo_file("deploy/charts/paddlewheel")),
        "--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m",
        "--set-string", f"rollout={rollout}", *settings,
    )  # fmt: skip
