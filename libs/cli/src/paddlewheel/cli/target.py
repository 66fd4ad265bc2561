"""What a command is about: the user's own Kubernetes cluster or an embedded one, and an object in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paddlewheel.cli.kubeconfig import check_kubeconfig
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.devcluster.cluster import opened
from paddlewheel.devcluster.status import status
from paddlewheel.kube import connect

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")]
"""Of the object that a command is about, unless its name says it: see `key_in`."""
VARIABLE = "KUBECONFIG"
_WITHIN = 10
"""Seconds to wait for an API server that does not answer."""


@dataclass(frozen=True)
class Target:
    """A cluster: the embedded one of a name, or the user's own, with the variable or option that named it."""

    kubeconfig: str
    embedded: str | None
    source: str = VARIABLE

    @property
    def tools(self) -> Tools:
        return Tools(self.kubeconfig)

    @property
    def gateway_url(self) -> str:
        """Where this machine reaches the gateway of an embedded cluster; "" when it has none."""
        addons = status(self.embedded).addons if self.embedded else ()
        return next((addon.url for addon in addons if addon.url), "")

    def __str__(self) -> str:
        return f"embedded cluster {self.embedded}" if self.embedded else f"{self.source}={self.kubeconfig}"

    async def get(self, path: str) -> str:
        """What the API server answers to one GET.

        Raises:
            NotFound: there is no such object.
            Permanent: the server does not answer or does not accept the credentials, or forbids the request.
        """
        try:
            return await self.tools.run("kubectl", "get", "--raw", path, f"--request-timeout={_WITHIN}s")
        except Permanent as error:
            if "(NotFound)" in error.message:
                raise NotFound(path) from error
            if error.reason != "ToolFailed" or "(Forbidden)" in error.message:
                raise
            raise Permanent("ClusterUnreachable", f"{self}: {error.message}; {self._remedy}") from error

    async def check(self) -> None:
        """Raises Permanent when the API server does not answer."""
        await self.get("/version")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[ApiCluster]:
        """A client of the API server. Raises Permanent when it does not answer."""
        await self.check()
        async with await connect(self.kubeconfig) as api:
            yield api

    @property
    def _remedy(self) -> str:
        if self.embedded:
            return f"`paddlewheel cluster up --name {self.embedded}` starts it"
        return f"start that cluster, or change {self.source}, or omit it to use the embedded cluster"


def target(name: str) -> Target:
    """The user's cluster when KUBECONFIG is set, else the embedded cluster `name`.

    Raises:
        Permanent: the file cannot be used, or there is no such embedded cluster; names a remedy.
    """
    return own_cluster(os.environ[VARIABLE]) if uses_own_cluster() else embedded_cluster(name)


def own_cluster(kubeconfig: str, source: str = VARIABLE) -> Target:
    """The cluster of a kubeconfig, which `source` named. Raises Permanent when the file cannot be used."""
    check_kubeconfig(kubeconfig, source)
    return Target(kubeconfig, None, source)


def embedded_cluster(name: str) -> Target:
    """Raises Permanent when there is none of that name."""
    return Target(str(opened(name).kubeconfig), name)


def uses_own_cluster() -> bool:
    """True when the user has set KUBECONFIG."""
    return bool(os.environ.get(VARIABLE))


def key_in(namespace: str, name: str) -> Key:
    """Of an object named by its name, or by namespace/name."""
    within, _, own = name.rpartition("/")
    return Key(within or namespace, own)
