"""The cluster and the namespace of a command, chosen as kubectl chooses them."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddlewheel.cli.kubeconfig import KubeContext, chosen_context, default_context
from paddlewheel.cli.output import NAME_VARIABLE
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

VARIABLE = "KUBECONFIG"
DEFAULT_CLUSTER = "demo"
"""The embedded cluster that commands use when nothing else is configured."""
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the credentials of a pod."""
_API_TIMEOUT_SECONDS = 10
_NO_CREDENTIALS = ("(Unauthorized)", "getting credentials")
"""Texts of kubectl when the server rejects the credentials, or a credential plugin fails."""
_CURRENT = f"{VARIABLE}, then ~/.kube/config, then the service account of this pod"
_EMBEDDED = f"{NAME_VARIABLE} if {VARIABLE} is not set, {DEFAULT_CLUSTER} if nothing is configured"


def _option(*names: str, help: str) -> Any:  # noqa: A002 - as Typer names it
    return typer.Option(*names, help=help, show_default=False, rich_help_panel="Cluster and namespace")


_OPTIONS: Mapping[str, tuple[type, Any]] = {
    "namespace": (str, _option("--namespace", "-n", help="Namespace; default: that of the context.")),
    "all_namespaces": (bool, _option("--all-namespaces", "-A", help="Use all namespaces.")),
    "context": (str, _option("--context", help="Context of the kubeconfig; default: its current one.")),
    "kubeconfig": (str, _option("--kubeconfig", help=f"File to use; default: {_CURRENT}.")),
    "cluster": (
        str,
        _option("--cluster", help=f"Embedded cluster to use instead; default: {_EMBEDDED}."),
    ),
}


@dataclass(frozen=True)
class Target:
    """A Kubernetes cluster, with the option or variable that chose it.

    Attributes:
        kubeconfig: one file or several, as in the variable; "" for the service account of this pod.
        embedded: name of an embedded cluster, or None.
        source: the option or variable; "" for ~/.kube/config.
        context: name of a context; "" for the current one.
        namespace: the namespace of the context.
    """

    kubeconfig: str
    embedded: str | None
    source: str = VARIABLE
    context: str = ""
    namespace: str = field(default="default", compare=False)

    @property
    def tools(self) -> Tools:
        return Tools(self.kubeconfig, self.context)

    @property
    def gateway_url(self) -> str:
        """URL at which this machine reaches the gateway of an embedded cluster, or ""."""
        addons = status(self.embedded).addons if self.embedded else ()
        return next((addon.url for addon in addons if addon.url), "")

    @property
    def kubectl(self) -> str:
        """A kubectl command for this cluster, to be shown to users."""
        context = f" --context {self.context}" if self.context else ""
        if os.pathsep in self.kubeconfig:
            return f"{VARIABLE}={self.kubeconfig} kubectl{context}"
        return f"kubectl{f' --kubeconfig {self.kubeconfig}' if self.kubeconfig else ''}{context}"

    def __str__(self) -> str:
        if self.embedded:
            return f"embedded cluster {self.embedded}"
        if not self.kubeconfig:
            return "the cluster of this pod"
        own = f"{self.source}={self.kubeconfig}" if self.source else self.kubeconfig
        return f"context {self.context} of {own}" if self.context else own

    async def get(self, path: str) -> str:
        """Send one GET to the API server and return the body of its answer.

        Raises:
            NotFound: there is no such object.
            Permanent: the server does not answer, rejects the credentials or forbids the request.
        """
        try:
            return await self.tools.run(
                "kubectl", "get", "--raw", path, f"--request-timeout={_API_TIMEOUT_SECONDS}s", prompts=True
            )
        except Permanent as error:
            if "(NotFound)" in error.message:
                raise NotFound(path) from error
            if error.reason != "ToolFailed" or "(Forbidden)" in error.message:
                raise
            if any(text in error.message for text in _NO_CREDENTIALS):
                advice = "log in again, or choose another context with --context"
                raise Permanent("Unauthorized", f"{self}: {error.message}; {advice}") from error
            raise Permanent("ClusterUnreachable", f"{self}: {error.message}; {self._advice}") from error

    async def check(self) -> None:
        """Raises Permanent when the API server does not answer."""
        await self.get("/version")

    @asynccontextmanager
    async def connected(self, *, check: bool = True) -> AsyncIterator[ApiCluster]:
        """Yield a client of the API server.

        Args:
            check: raise Permanent when the server does not answer; False when it has just answered.
        """
        if check:
            await self.check()
        async with await connect(self.kubeconfig, context=self.context) as api:
            yield api

    @property
    def _advice(self) -> str:
        if self.embedded:
            return f"start it with `paddlewheel cluster up --name {self.embedded}`"
        other = f"change {self.source}" if self.source else "choose another with --context or --kubeconfig"
        return f"start that cluster, or {other}"


@dataclass(frozen=True)
class Where:
    """The options of a command that choose its cluster and namespace. `on_cluster` fills them in."""

    namespace: str = ""
    all_namespaces: bool = False
    context: str = ""
    kubeconfig: str = ""
    cluster: str = ""

    @cached_property
    def target(self) -> Target:
        """The cluster. Raises Permanent when it cannot be used."""
        return choose_target(self)

    @property
    def names_cluster(self) -> bool:
        """True when an option, not the environment, chooses the cluster."""
        return bool(self.context or self.kubeconfig or self.cluster)

    @property
    def uses_own_bus(self) -> bool:
        """True when the bus is the server of NATS_URL; then no cluster is needed."""
        return bool(os.environ.get("NATS_URL")) and not self.names_cluster

    @property
    def listed(self) -> str:
        """The namespace to list, "" for all. Raises Permanent for an invalid name."""
        return "" if self.all_namespaces else self.current_namespace

    @property
    def listed_on_bus(self) -> str:
        """The namespace of the facts to read, "" for all: a server of NATS_URL has no default namespace."""
        return "" if self.uses_own_bus and not self.namespace else self.listed

    @property
    def current_namespace(self) -> str:
        """The namespace of objects that the user names without one. Raises Permanent for an invalid name."""
        return checked_namespace(self.namespace or self.target.namespace)

    @property
    def namespace_of_manifests(self) -> str:
        """The same for manifests that are only printed: without a cluster it is `default`."""
        try:
            return self.current_namespace
        except Permanent:
            if self.namespace or self.names_cluster:
                raise
            return "default"

    def key(self, name: str) -> Key:
        """Key of an object that the user names as `name` or `namespace/name`. Raises Permanent."""
        within, _, own = name.rpartition("/")
        if not is_name(own):
            raise Permanent("InvalidName", f"{own!r} is not a valid name of an object: use {NAME_FORM}")
        return Key(checked_namespace(within) if within else self.current_namespace, own)

    def named(self, text: str) -> str:
        """`namespace/name` of an object on the bus, which the user names as `name` or `namespace/name`.

        A server of NATS_URL has no default namespace: then a name without one stays as it is.
        """
        if not text or "/" in text or (self.uses_own_bus and not (self.namespace or self.all_namespaces)):
            return text
        return f"{'*' if self.all_namespaces else self.current_namespace}/{text}"

    async def objects(self, resource: Resource) -> list[Object]:
        """The objects to list, sorted by name. Raises Permanent."""
        namespace = self.listed
        async with self.target.connected() as api:
            return sorted(await list_all(api, resource, namespace), key=key_of)

    def report_none(self, resource: Resource) -> None:
        """Print to standard error that a list is empty, and where the command looked."""
        place = f"namespace {self.listed}" if self.listed else "any namespace"
        more = "; -A lists all namespaces" if self.listed else ""
        typer.echo(f"No {resource.kind}s found in {place}. Cluster: {self.target}{more}", err=True)


def on_cluster(
    *, namespaced: bool = True, lists: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of `Where`, and pass them as its parameter `where`.

    Args:
        namespaced: with --namespace.
        lists: with --all-namespaces.
    """
    given = {"namespace": namespaced, "all_namespaces": lists}
    names = [name for name in _OPTIONS if given.get(name, True)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["where"]
        # The format of the output is the last option of every command.
        last = [own.pop("output")] if "output" in own else []
        parameters = [*own.values(), *(_parameter(name) for name in names), *last]

        def run(**values: Any) -> Any:
            where = Where(**{name: values.pop(name) for name in names})
            return command(where=where, **values)

        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    """An option of `Where`."""
    type_, option = _OPTIONS[name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=type_(), annotation=Annotated[type_, option])


def choose_target(where: Where) -> Target:
    """Choose the cluster as kubectl does, and an embedded cluster when nothing else is configured.

    Raises:
        BadParameter: the options contradict each other.
        Permanent: the kubeconfig cannot be used, or there is no such context or embedded cluster.
    """
    if where.cluster:
        if where.context or where.kubeconfig:
            raise typer.BadParameter(
                "leave out --context and --kubeconfig, or --cluster", param_hint="--cluster"
            )
        return embedded_cluster(where.cluster)
    if where.kubeconfig:
        return own_cluster(str(Path(where.kubeconfig).expanduser()), "--kubeconfig", where.context)
    if files := os.environ.get(VARIABLE):
        return own_cluster(files, VARIABLE, where.context)
    name = os.environ.get(NAME_VARIABLE, "")
    if name and not where.context:
        return embedded_cluster(name)
    default = Path.home() / ".kube/config"
    if chosen := default_context(default, where.context):
        return Target(chosen.files, None, "", chosen.name, chosen.namespace)
    if where.context:
        raise Permanent(
            "NoKubeconfig",
            f"--context {where.context}: there is no kubeconfig; name one with --kubeconfig or {VARIABLE}",
        )
    return _pod_cluster() or _default_cluster()


def explicit_choice(kubeconfig: str, embedded: str) -> str:
    """The cluster of a command that ignores the variable, and why, for people.

    Args:
        kubeconfig: value of --kubeconfig, or "".
        embedded: the cluster that the command uses without it.
    """
    if kubeconfig:
        return f"that of --kubeconfig {kubeconfig}"
    own = os.environ.get(VARIABLE)
    why = f"; {VARIABLE}={own} is not used, --kubeconfig would be" if own else ", as no --kubeconfig is given"
    return f"{embedded}{why}"


def own_cluster(kubeconfig: str, source: str = VARIABLE, context: str = "") -> Target:
    """The cluster of a kubeconfig. Raises Permanent when the file cannot be used.

    Args:
        source: the option or variable that named the file; "" for ~/.kube/config.
    """
    chosen = chosen_context(kubeconfig, source, context)
    return Target(chosen.files, None, source, chosen.name, chosen.namespace)


def embedded_cluster(name: str) -> Target:
    """Raises Permanent when there is no embedded cluster of that name."""
    return Target(str(opened(name).kubeconfig), name)


def _pod_cluster() -> Target | None:
    """The cluster of the pod in which the command runs, or None."""
    if not (os.environ.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").is_file()):
        return None
    file = _SERVICE_ACCOUNT / "namespace"
    namespace = file.read_text().strip() if file.is_file() else KubeContext.namespace
    return Target("", None, "", "", namespace)


def _default_cluster() -> Target:
    try:
        found = embedded_cluster(DEFAULT_CLUSTER)
    except Permanent as error:
        own = f"set {VARIABLE}, or create ~/.kube/config, to use a cluster of your own"
        raise Permanent(error.reason, f"{error.message}; or {own}") from None
    typer.echo(f"no kubeconfig found: using embedded cluster {DEFAULT_CLUSTER}", err=True)
    return found


async def find(api: Cluster, resource: Resource, key: Key) -> Object:
    """Get an object. Raises Permanent, which names the objects that the namespace has."""
    with suppress(NotFound):
        return await api.get(resource, key)
    there = sorted(key_of(obj).name for obj in await list_all(api, resource, key.namespace))
    known = f"has: {', '.join(there[:10])}" if there else "has none; choose another with --namespace (-n)"
    raise Permanent(
        f"NoSuch{resource.kind.removeprefix('Paddle')}",
        f"{resource.kind} {key} not found; namespace {key.namespace} {known}",
    )


async def list_all(api: Cluster, resource: Resource, namespace: str) -> list[Object]:
    """The objects of a namespace, or of all (""). Raises Permanent when the kind is not installed."""
    try:
        return await api.list(resource, namespace)
    except NotFound:
        advice = "install the chart of this version (docs/tasks/install.md)"
        raise Permanent("NotInstalled", f"the cluster has no kind {resource.kind}: {advice}") from None


def checked_namespace(name: str) -> str:
    """Return the name. Raises Permanent when it is not a valid name of a namespace."""
    if not is_namespace(name):
        raise Permanent("InvalidName", f"{name!r} is not a valid name of a namespace: use {NAMESPACE_FORM}")
    return name
