"""What a command is about: the user's own Kubernetes cluster or an embedded one, and an object in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paddlewheel.cli.kubeconfig import check_kubeconfig
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.keys import NAME_FORM, NAMESPACE_FORM, Key, is_name, is_namespace
from paddlewheel.contracts.objects import key_of
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.devcluster.cluster import opened
from paddlewheel.devcluster.status import status
from paddlewheel.kube import connect
from paddlewheel.kube.ports import Cluster, Object, Resource

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")]
"""Of the object that a command is about, unless its name says it: see `key_in`."""
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")]
Context = Annotated[str, typer.Option("--context", help="Context of KUBECONFIG; default: its current one.")]
VARIABLE = "KUBECONFIG"
_WITHIN = 10
"""Seconds to wait for an API server that does not answer."""


@dataclass(frozen=True)
class Target:
    """A cluster: the embedded one of a name, or the user's own, with the variable or option that named it.

    `context`: of the kubeconfig; "" is its current one.
    """

    kubeconfig: str
    embedded: str | None
    source: str = VARIABLE
    context: str = ""

    @property
    def tools(self) -> Tools:
        return Tools(self.kubeconfig, self.context)

    @property
    def gateway_url(self) -> str:
        """Where this machine reaches the gateway of an embedded cluster; "" when it has none."""
        addons = status(self.embedded).addons if self.embedded else ()
        return next((addon.url for addon in addons if addon.url), "")

    def __str__(self) -> str:
        if self.embedded:
            return f"embedded cluster {self.embedded}"
        own = f"{self.source}={self.kubeconfig}"
        return f"context {self.context} of {own}" if self.context else own

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

    async def objects(self, resource: Resource, namespace: str) -> list[Object]:
        """The objects of a namespace, or of all (""), in the order of their names. Raises Permanent."""
        async with self.connected() as api:
            return sorted(await list_all(api, resource, namespace), key=key_of)

    async def check(self) -> None:
        """Raises Permanent when the API server does not answer."""
        await self.get("/version")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[ApiCluster]:
        """A client of the API server. Raises Permanent when it does not answer."""
        await self.check()
        async with await connect(self.kubeconfig, context=self.context) as api:
            yield api

    @property
    def _remedy(self) -> str:
        if self.embedded:
            return f"`paddlewheel cluster up --name {self.embedded}` starts it"
        return f"start that cluster, or change {self.source}, or omit it to use the embedded cluster"


def target(name: str, context: str = "") -> Target:
    """The user's cluster when KUBECONFIG is set, else the embedded cluster `name`.

    Raises:
        Permanent: the file cannot be used, or there is no such context or embedded cluster; names a remedy.
    """
    if uses_own_cluster():
        return own_cluster(os.environ[VARIABLE], context=context)
    if context:
        remedy = f"set {VARIABLE} to the file that has it, as in `export {VARIABLE}=~/.kube/config`"
        raise Permanent("NoKubeconfig", f"--context {context} is of no file: {remedy}")
    try:
        return embedded_cluster(name)
    except Permanent as error:
        own = f"set {VARIABLE} to use a cluster of your own"
        raise Permanent(error.reason, f"{error.message}; or {own}") from None


def own_cluster(kubeconfig: str, source: str = VARIABLE, context: str = "") -> Target:
    """The cluster of a kubeconfig, which `source` named. Raises Permanent when the file cannot be used."""
    check_kubeconfig(kubeconfig, source, context)
    return Target(kubeconfig, None, source, context)


def embedded_cluster(name: str) -> Target:
    """Raises Permanent when there is none of that name."""
    return Target(str(opened(name).kubeconfig), name)


def uses_own_cluster() -> bool:
    """True when the user has set KUBECONFIG."""
    return bool(os.environ.get(VARIABLE))


async def find(api: Cluster, resource: Resource, key: Key) -> Object:
    """The object of a name. Raises Permanent, which names those that there are in the namespace."""
    with suppress(NotFound):
        return await api.get(resource, key)
    there = sorted(key_of(obj).name for obj in await list_all(api, resource, key.namespace))
    known = f"are: {', '.join(there[:10])}" if there else "are none: --namespace (-n) names another"
    raise Permanent(
        f"NoSuch{resource.kind.removeprefix('Paddle')}",
        f"no {resource.kind} {key}; in namespace {key.namespace} there {known}",
    )


async def list_all(api: Cluster, resource: Resource, namespace: str) -> list[Object]:
    """The objects of a namespace, or of all (""). Raises Permanent when the kind is not installed."""
    try:
        return await api.list(resource, namespace)
    except NotFound:
        remedy = "install the chart of this version (docs/tasks/install.md)"
        raise Permanent("NotInstalled", f"the cluster does not know {resource.kind}: {remedy}") from None


def key_in(namespace: str, name: str) -> Key:
    """Of an object named by its name, or by namespace/name. Raises Permanent when none can have the name."""
    within, _, own = name.rpartition("/")
    if not is_name(own):
        raise Permanent("InvalidName", f"{own!r} is no name of an object: use {NAME_FORM}")
    return Key(checked_namespace(within or namespace), own)


def checked_namespace(name: str) -> str:
    """The same name. Raises Permanent when no namespace can have it."""
    if not is_namespace(name):
        raise Permanent("InvalidName", f"{name!r} is no name of a namespace: use {NAMESPACE_FORM}")
    return name
