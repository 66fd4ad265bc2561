"""The Kubernetes cluster of a command: the user's (KUBECONFIG) or an embedded one by name."""

from __future__ import annotations

import os
from dataclasses import dataclass

from paddlewheel.cli.tools import Tools
from paddlewheel.devcluster.cluster import opened


@dataclass(frozen=True)
class Target:
    """A cluster; `embedded` is its name, or None for the user's own."""

    kubeconfig: str
    embedded: str | None

    @property
    def tools(self) -> Tools:
        return Tools(self.kubeconfig)


def target(name: str) -> Target:
    """The user's cluster when KUBECONFIG is set, else the embedded cluster `name`.

    Raises:
        Permanent: no embedded cluster of that name is running; the message names the command to start it.
    """
    if own := os.environ.get("KUBECONFIG"):
        return Target(own, None)
    return Target(str(opened(name).kubeconfig), name)


def uses_own_cluster() -> bool:
    """True when the user has set KUBECONFIG."""
    return bool(os.environ.get("KUBECONFIG"))
