"""bus-auth as the chart installs it: real API server and NATS server, the service with exactly its rights."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import INSTALLER, SUBSCRIBER, inbox_prefix
from paddlewheel.bus.callout.hosts import Limits
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.callout.serve import LIMITS, Authorize, CalloutServer
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.nats.callout import NatsCallout
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN_TIMEOUT_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import AlreadyExists
from paddlewheel.core.sockets import free_ports
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import NAMESPACES, SUBJECT_ACCESS_REVIEWS, Object, Resource
from paddlewheel.testkit.chart_bus import BUS_CA, ChartBus, Guest, entering, running
from paddlewheel.testkit.charts import Manifest, named, pod_specs, render
from paddlewheel.testkit.kubernetes import SERVICE_ACCOUNTS
from paddlewheel.testkit.rights import NAMESPACE
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.wait import eventually, patiently

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
RBAC_ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
AUTH = "bus-auth"
_GROUP = "events.paddlepaddle.org"
"""The API group of resources that exist in RBAC rules only."""


@dataclass
class BusAuthStand:
    """A bus with token authentication.

    Args:
        home: a namespace for this test only, with its accounts and data sets.
        folder: folder of files and logs.
        env: further settings of bus-auth, without their prefix.
        values: `--set` values of the chart.
        release: the namespace in which bus-auth runs, and roles and teams are bound; "" = `home`.
    """

    cluster: ApiCluster
    kubeconfig: str
    home: str
    folder: Path
    bus: ChartBus
    env: dict[str, str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    port: int = 0
    service: Service | None = None
    made: list[tuple[Resource, Key]] = field(default_factory=list)
    release: str = ""

    def lent(self, cluster: ApiCluster, home: str) -> BusAuthStand:
        """The same servers for one test.

        Args:
            cluster: the test's own client.
            home: the test's own namespace.
        """
        return replace(self, cluster=cluster, home=home, release=self._release, made=[])

    @property
    def _release(self) -> str:
        return self.release or self.home

    @property
    def log(self) -> str:
        """The log of bus-auth."""
        return (self.folder / "bus-auth.log").read_text()

    async def start(self, **env: str) -> None:
        """Start bus-auth and return when the bus's requests reach it."""
        self.service = Service("bus_auth", self._environment(env), self.folder / "bus-auth.log")
        await self.service.start()
        await eventually(self._is_ready, what="bus-auth is ready")

    async def stop(self) -> None:
        """SIGKILL."""
        if self.service:
            await self.service.kill()

    async def install(self) -> None:
        """Create the chart's ClusterRoles, and the account of bus-auth with only the rights that the chart
        grants.

        The account is in the chart's namespace, not in `home`, because `make rights` finds it by its name.
        """
        name = "paddlewheel-watch-facts"
        role = named(rendered(*self.values), "ClusterRole", name)
        await self.create(CLUSTER_ROLES, {"metadata": {"name": self._own(name)}, "rules": role["rules"]})
        await ensure_account(self.cluster, AUTH)
        await self.bind("system:auth-delegator", AUTH, of=NAMESPACE)
        await self._write_kubeconfig()

    async def account(self, name: str, namespace: str = "") -> None:
        """A service account."""
        await self.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": namespace or self.home}})

    async def namespace(self) -> str:
        """A further namespace of this test alone."""
        name = f"test-{uuid.uuid4().hex[:10]}"
        await self.create(NAMESPACES, {"metadata": {"name": name}})
        return name

    async def bind(self, cluster_role: str, account: str, *, where: str = "", of: str = "") -> Key:
        """Bind a ClusterRole to an account of namespace `of`, in namespace `where` or, "", everywhere."""
        metadata = {
            "name": f"{cluster_role}-{account}-{self.home}",
            **({"namespace": where} if where else {}),
        }
        subject = {"kind": "ServiceAccount", "name": account, "namespace": of or self.home}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role}
        resource = ROLE_BINDINGS if where else CLUSTER_ROLE_BINDINGS
        return await self.create(
            resource, {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        )

    async def allow_facts(self, account: str, *, where: str = "", of: str = "") -> Key:
        """Bind the role as `kubectl create rolebinding --clusterrole=paddlewheel-watch-facts` does."""
        bound = await self.bind(self._own("paddlewheel-watch-facts"), account, where=where, of=of)
        await self.in_force(account, "watch", "facts", where=where, of=of)
        return bound

    async def allow_role(self, role: str) -> str:
        """A token of the account that has the role by its name, in the release's namespace."""
        with suppress(AlreadyExists):
            await self.account(role, self._release)
        return await self.token(role, self._release)

    async def allow_team(self, account: str, team: str = SUBSCRIBER) -> None:
        """The account belongs to the team."""
        await self._bound(account, f"bus-team-{team}")
        await self.in_force(account, "use", "busteams", where=self._release, name=team)

    async def allow_service(self, service: str, account: str, *, of: str) -> None:
        """The chart's Role of a service of others, and what `kubectl create rolebinding --role` does."""
        name = f"bus-{service}"
        found = named(rendered(*self.values), "Role", name)
        await self.create(RBAC_ROLES, {**found, "metadata": {"name": name, "namespace": self._release}})
        subject = {"kind": "ServiceAccount", "name": account, "namespace": of}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        metadata = {"name": service, "namespace": self._release}
        await self.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})
        await self.in_force(account, "use", "busroles", where=self._release, of=of, name=service)

    async def in_force(
        self,
        account: str,
        verb: str,
        resource: str,
        *,
        where: str = "",
        of: str = "",
        name: str = "",
        is_allowed: bool = True,
    ) -> None:
        """Wait until the API server applies a new or deleted binding, which takes a moment.

        Args:
            where, name: namespace and name of the object in the check; "" = all.
            of: namespace of the account; "" = the release's.
        """
        namespace = of or self.home
        asked = {"group": _GROUP, "resource": resource, "verb": verb, "namespace": where, "name": name}
        spec = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": asked,
        }

        async def is_so() -> bool:
            answer = await self.cluster.create(SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
            return bool((answer.get("status") or {}).get("allowed")) is is_allowed

        await eventually(is_so, what=f"{account} may {'' if is_allowed else 'not '}{verb} {resource}")

    async def _bound(self, account: str, role: str) -> None:
        metadata = {"name": f"{role}-{self.home}", "namespace": self._release}
        made = named(rendered(*self.values), "Role", role)
        await self.create(RBAC_ROLES, {**made, "metadata": metadata})
        subjects = [{"kind": "ServiceAccount", "name": account, "namespace": self.home}]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
        await self.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": subjects})

    async def token(
        self,
        account: str,
        namespace: str = "",
        *,
        audience: str = AUDIENCE,
        seconds: int = TOKEN_TIMEOUT_SECONDS,
    ) -> str:
        """Create a token as the kubelet does for a projected one, or as `kubectl create token` does."""
        where = namespace or self.home
        spec: dict[str, Any] = {"audiences": [audience] if audience else [], "expirationSeconds": seconds}
        requests = Resource("", "v1", f"serviceaccounts/{account}/token", "TokenRequest")
        body = {"apiVersion": "authentication.k8s.io/v1", "metadata": {"namespace": where}, "spec": spec}
        return str((await self.cluster.create(requests, body))["status"]["token"])

    def enter(self, role: str, token: str, *, prefix: str = "") -> AbstractAsyncContextManager[Guest]:
        """A client that shows a token, connected once."""
        prefix = prefix or inbox_prefix(role.partition(".")[0])
        return entering(self.bus, self.bus.folder / BUS_CA, prefix=prefix, user=role, password=token)

    def access(self, role: str, token: str, **changes: Any) -> Access:
        """The access in a service's settings, with the token in a file that the test may change."""
        file = self.folder / f"token-{role}-{uuid.uuid4().hex[:6]}"
        file.write_text(token)
        usual = self.bus.access(role, tls_dir=str(self.bus.folder / BUS_CA), token_file=str(file))
        return replace(usual, **changes)

    @asynccontextmanager
    async def installed(self) -> AsyncIterator[None]:
        """bus-installer, by its token, runs while the block does; streams and durables are there."""
        access = self.access(INSTALLER, await self.allow_role(INSTALLER))
        installer = NatsBus(access, name=INSTALLER)
        try:
            await patiently(installer.install)
            yield
        finally:
            await installer.close()

    async def create(self, resource: Resource, obj: Object) -> Key:
        """Create what is removed after the test."""
        found = await self.cluster.create(resource, obj)
        key = Key(found["metadata"].get("namespace", ""), found["metadata"]["name"])
        self.made.append((resource, key))
        return key

    async def clean_up(self) -> None:
        """Remove everything that was made."""
        for resource, key in reversed(self.made):
            await self.cluster.delete(resource, key)

    def _own(self, name: str) -> str:
        """Cluster-wide names of this test alone: all tests share the API server."""
        return f"{name}-{self._release}"

    async def _is_ready(self) -> bool:
        from aiohttp import ClientError, ClientSession

        assert self.service is not None
        assert self.service.exit_code is None, self.log
        try:
            async with (
                ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}/readyz") as answer,
            ):
                return answer.status == 200
        except ClientError:
            return False

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        [self.port] = free_ports(1)
        settings = {
            "NATS_URL": self.bus.url.replace("127.0.0.1", "localhost"),
            "NATS_TLS_DIR": str(self.bus.folder / BUS_CA),
            "KEY_FILE": str(self.bus.folder / "bus-auth-key" / "tls.key"),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HTTP_PORT": str(self.port),
            "POD_NAMESPACE": self._release,
            **{name: env_of(AUTH, *self.values)[f"BUS_AUTH_{name}"] for name in ("TEAMS", "SERVICES")},
            **self.env,
            **env,
        }
        return {**os.environ, **{f"BUS_AUTH_{name}": value for name, value in settings.items()}}

    async def _write_kubeconfig(self) -> None:
        """Write a kubeconfig with a token of bus-auth's account instead of the administrator's
        certificate."""
        config = yaml.safe_load(Path(self.kubeconfig).read_text())
        # "" = the API server's own audience.
        config["users"][0]["user"] = {"token": await self.token(AUTH, NAMESPACE, audience="")}
        (self.folder / "kubeconfig").write_text(json.dumps(config))


async def ensure_account(cluster: ApiCluster, name: str) -> None:
    """A service account in the chart's namespace, which all tests of the API server share."""
    with suppress(AlreadyExists):
        await cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    with suppress(AlreadyExists):
        await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}})


def rendered(*values: str) -> tuple[Manifest, ...]:
    """The chart."""
    return render("paddlewheel", "crds.install=false", *values)


def env_of(deployment: str, *values: str) -> dict[str, str]:
    """The environment that the chart sets, without variables whose value only the pod has."""
    [container] = dict(pod_specs(rendered(*values)))[deployment]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def claims_of(token: str) -> dict[str, Any]:
    """The content of a JWT, unchecked."""
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def bus_auth_access(bus: ChartBus) -> Access:
    """The access of bus-auth itself."""
    return Access(
        bus.url.replace("127.0.0.1", "localhost"),
        tls_dir=str(bus.folder / BUS_CA),
        nkey_seed=_key_of(bus).seed,
        streams="assume",
        inbox_prefix=inbox_prefix(AUTH),
    )


def _key_of(bus: ChartBus) -> CalloutKey:
    return CalloutKey(bus.folder / "bus-auth-key" / "tls.key")


@asynccontextmanager
async def letting_in(bus: ChartBus, authorize: Authorize, limits: Limits = LIMITS) -> AsyncIterator[None]:
    """While the block runs, a function decides instead of Kubernetes whether a client is accepted."""
    clock = SystemClock()
    server = CalloutServer(_key_of(bus), authorize, clock, lambda _: None, limits)
    async with _at_work(NatsCallout(bus_auth_access(bus), server, clock, name=AUTH)):
        yield


@asynccontextmanager
async def _at_work(*parts: NatsCallout) -> AsyncIterator[None]:
    """Parts of bus-auth; they are ready when the block begins."""
    tasks = [asyncio.create_task(each.run()) for each in parts]

    async def is_ready() -> bool:
        return all([await each.is_ready() is True for each in parts])

    try:
        await eventually(is_ready)
        yield
    finally:
        await end(*tasks)


@asynccontextmanager
async def standing(
    cluster: ApiCluster, kubeconfig: str, home: str, folder: Path, *values: str, **env: str
) -> AsyncIterator[BusAuthStand]:
    """Start a bus and bus-auth, which run while the block does.

    Args:
        values: `--set` values of the chart.
        env: further settings of bus-auth, without their prefix.
    """
    with running(folder / "bus", *values, passwords=False) as bus:
        stand = BusAuthStand(cluster, kubeconfig, home, folder, bus, env, values)
        try:
            await stand.install()
            await stand.start()
            yield stand
        finally:
            await stand.stop()
            await stand.clean_up()
