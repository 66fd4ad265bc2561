"""Processes of every cluster: etcd, API server, controller manager, scheduler; kwok if requested."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.devcluster.addresses import API_PORT, AddressPlan
from paddlewheel.devcluster.binaries import Binaries
from paddlewheel.devcluster.certs import API_SERVER_NAMES, Authority
from paddlewheel.devcluster.kubeconfig import write_kubeconfig
from paddlewheel.devcluster.plan import Unit
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

GANG_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
FAST_CLIENT = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""The default of 20 requests per second delays the start of the controller manager by 5 s."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch may never be answered to its end.
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "rbac.authorization.k8s.io"}],
        },
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""The audit policy. It records the metadata of requests by workloads: account, verb, kind, and whether the
request was allowed. It records changes of roles and bindings by all users completely, because they may cause
refusals."""
_AUDIT_MEGABYTES, _AUDIT_FILES = 50, 3
_ETCD = "http://127.0.0.1:2379"
_PEER = "http://127.0.0.1:2380"


@dataclass(frozen=True)
class ControlPlane:
    """The addresses, files and settings that the components share."""

    name: str
    dirs: ClusterDirs
    addresses: AddressPlan
    authority: Authority
    strict_owners: bool = False

    def kubeconfig(self, file: str, user: str, *groups: str) -> Path:
        """Write a component's kubeconfig next to its certificate and return its path."""
        return write_kubeconfig(
            self.dirs.pki / f"{file}.kubeconfig",
            name=f"paddlewheel-{self.name}",
            server=self.addresses.api_url,
            authority=self.authority.identity.certificate,
            identity=self.authority.client(file, user, groups),
        )


def control_plane(dirs: ClusterDirs, record: ClusterRecord) -> ControlPlane:
    """Open the cluster's certificate authority, creating it the first time."""
    authority = Authority(dirs.pki, record.spec.name)
    spec = record.spec
    return ControlPlane(spec.name, dirs, record.addresses, authority, strict_owners=spec.strict_owners)


def write_admin(plane: ControlPlane) -> Path:
    """Write the administrator's kubeconfig."""
    return plane.kubeconfig("admin", "paddlewheel-admin", "system:masters").replace(plane.dirs.kubeconfig)


def control_plane_units(plane: ControlPlane, binaries: Binaries) -> tuple[Unit, ...]:
    """The control plane's units, in start order."""
    return (
        _etcd(plane, binaries),
        _api_server(plane, binaries),
        _controller_manager(plane, binaries),
        _scheduler(plane, binaries),
    )


def kwok_unit(plane: ControlPlane, binaries: Binaries) -> Unit:
    """kwok, which simulates the nodes annotated `kwok.x-k8s.io/node: fake`."""
    kubeconfig = plane.kubeconfig("kwok", "kwok", "system:masters")
    argv = (
        str(binaries.path("kwok")),
        f"--kubeconfig={kubeconfig}",
        f"--config={binaries.path('kwok').with_name('data.yaml')}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        f"--node-ip={plane.addresses.inner}",
        # Unused addresses, enough for every pod of a scale test.
        "--cidr=10.0.0.0/14",
        "--v=WARN",
    )
    return Unit("kwok", argv, after=("kube-apiserver",))


def _etcd(plane: ControlPlane, binaries: Binaries) -> Unit:
    argv = (
        str(binaries.path("etcd")),
        "--name=default",
        f"--data-dir={plane.dirs.etcd}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_PEER}",
        f"--initial-advertise-peer-urls={_PEER}",
        f"--initial-cluster=default={_PEER}",
        "--log-level=warn",
        # Data in the page cache survives kill -9 but not a power failure, which is enough for development.
        "--unsafe-no-fsync",
    )
    return Unit("etcd", argv, ready="tcp:127.0.0.1:2379")


def _api_server(plane: ControlPlane, binaries: Binaries) -> Unit:
    addresses, authority = plane.addresses, plane.authority
    serving = authority.server(
        "apiserver", "kube-apiserver", API_SERVER_NAMES, [addresses.inner, addresses.services[1]]
    )
    kubelets = authority.client("apiserver-kubelet", "kube-apiserver-kubelet", ("system:masters",))
    tokens = authority.token_key()
    argv = (
        str(binaries.path("kube-apiserver")),
        f"--etcd-servers={_ETCD}",
        f"--bind-address={addresses.inner}",
        f"--advertise-address={addresses.inner}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={addresses.services}",
        f"--client-ca-file={authority.identity.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--kubelet-certificate-authority={authority.identity.certificate}",
        f"--kubelet-client-certificate={kubelets.certificate}",
        f"--kubelet-client-key={kubelets.key}",
        # Node names are not resolvable; by default `kubectl logs` would look them up in DNS.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={tokens.certificate}",
        f"--service-account-signing-key-file={tokens.key}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={_plugins(plane)}",
        "--allow-privileged=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
        GANG_GATES,
        *_audit(plane.dirs),
    )
    return Unit("kube-apiserver", argv, after=("etcd",), ready=f"{addresses.api_url}/readyz")


def _plugins(plane: ControlPlane) -> str:
    """The admission plugins that are not enabled by default, joined by commas."""
    plugins = ["NodeRestriction"]
    if plane.strict_owners:
        plugins.append("OwnerReferencesPermissionEnforcement")
    return ",".join(plugins)


def _audit(dirs: ClusterDirs) -> tuple[str, ...]:
    dirs.audit_policy.write_text(json.dumps(AUDIT_POLICY))
    return (
        f"--audit-policy-file={dirs.audit_policy}",
        f"--audit-log-path={dirs.audit_log}",
        f"--audit-log-maxsize={_AUDIT_MEGABYTES}",
        f"--audit-log-maxbackup={_AUDIT_FILES}",
    )


def _controller_manager(plane: ControlPlane, binaries: Binaries) -> Unit:
    kubeconfig = plane.kubeconfig("controller-manager", "system:kube-controller-manager")
    authority = plane.authority.identity
    argv = (
        str(binaries.path("kube-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        f"--service-account-private-key-file={plane.authority.token_key().key}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *FAST_CLIENT,
        GANG_GATES,
    )
    return Unit(
        "kube-controller-manager", argv, after=("kube-apiserver",), ready="https://127.0.0.1:10257/healthz"
    )


def _scheduler(plane: ControlPlane, binaries: Binaries) -> Unit:
    kubeconfig = plane.kubeconfig("scheduler", "system:kube-scheduler")
    argv = (
        str(binaries.path("kube-scheduler")),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *FAST_CLIENT,
        GANG_GATES,
    )
    return Unit("kube-scheduler", argv, after=("kube-apiserver",), ready="https://127.0.0.1:10259/healthz")
