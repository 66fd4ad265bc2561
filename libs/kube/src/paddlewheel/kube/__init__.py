"""The Cluster port and its API-server adapter, list/watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster


async def connect(kubeconfig: str | None = None, *, context: str = "") -> ApiCluster:
    """A client of the API server of `kubeconfig`, else of KUBECONFIG, else of the pod's service account.

    Nothing is sent yet. The caller closes it (`async with`).

    Args:
        context: of the file; default: its current one.

    Raises:
        Permanent: there is no usable configuration.
    """
    # The client library takes a second to import; those who use only the ports do not pay for it.
    from paddlewheel.kube.configuration import open_cluster

    return await open_cluster(kubeconfig, context)
