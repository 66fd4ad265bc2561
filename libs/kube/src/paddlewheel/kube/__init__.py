"""Access to the Kubernetes API: ports, an adapter for an API server, and watched copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster


async def connect(kubeconfig: str | None = None, *, context: str = "") -> ApiCluster:
    """Open a client for the API server of `kubeconfig`, of KUBECONFIG, or of the pod's service account.

    The first of these three that is set is used. Nothing is sent yet. The caller closes the client
    (`async with`).

    Args:
        context: a context of the file. "" means the current context.

    Raises:
        Permanent: there is no usable configuration.
    """
    # The client library takes a second to import, which programs that use only the ports need not spend.
    from paddlewheel.kube.configuration import open_cluster

    return await open_cluster(kubeconfig, context)
