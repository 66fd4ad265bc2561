"""Builds the cluster's programs from Go modules, once per machine and version.

Each module in deploy/ is built into one directory `<cache>/bin/<module>-<key>`. The key covers every build
input, so a changed go.sum or flag triggers a rebuild, and nothing else does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.go import GoBuild, build, module_folder

Report = Callable[[str, float], None]
"""Called with the current step and the fraction done, 0 to 1."""

_VERSION = "-X k8s.io/component-base/version.gitVersion=v1.36.3"
_DATA = "data.yaml"
_CONTAINERD = "-X github.com/containerd/containerd/v2/version.Version=v2.4.2"


@dataclass(frozen=True)
class Module:
    """One Go module of ours.

    Args:
        folder: path relative to deploy/.
        target: argument of `go install`; nothing is built without programs.
        programs: name of each program in the cache, by the name `go install` gives it.
        weight: rough share of the build time, for progress only.
        data: YAML files by the Go module they come from, joined into one `data.yaml` next to the programs.
    """

    name: str
    folder: str
    target: str
    programs: Mapping[str, str]
    link: str = ""
    weight: float = 1.0
    env: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _same(*programs: str) -> dict[str, str]:
    return {program: program for program in programs}


KUBERNETES = Module(
    "kubernetes",
    "devcluster/tools",
    "tool",
    _same("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet")
    | {"server": "etcd"},
    link=_VERSION,
    weight=6.0,
)
CONTAINERD = Module(
    "containerd",
    "devcluster/containerd",
    "tool",
    _same("containerd", "containerd-shim-runc-v2", "ctr", "host-local", "loopback", "portmap", "ptp"),
    link=_CONTAINERD,
    weight=1.2,
)
COREDNS = Module("coredns", "devcluster/coredns", ".", _same("coredns"), weight=1.2)
KWOK = Module(
    "kwok",
    "devcluster/kwok",
    "tool",
    _same("kwok"),
    weight=1.3,
    data={
        "sigs.k8s.io/kwok": (
            "kustomize/stage/node/fast/node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml",
        )
    },
)
KUEUE = Module(
    "kueue",
    "devcluster/kueue",
    "tool",
    _same("kueue"),
    weight=1.5,
    env={"CGO_ENABLED": "0"},
    data={
        "sigs.k8s.io/kueue": tuple(
            f"config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml"
            for kind in (
                "admissionchecks",
                "clusterqueues",
                "cohorts",
                "localqueues",
                "multikueueclusters",
                "multikueueconfigs",
                "provisioningrequestconfigs",
                "resourceflavors",
                "topologies",
                "workloadpriorityclasses",
                "workloads",
            )
        )
    },
)
GATEWAY_API = Module(
    "gateway-api",
    "devcluster/gateway-api",
    "",
    {},
    weight=0.1,
    data={
        "sigs.k8s.io/gateway-api": tuple(
            f"config/crd/standard/gateway.networking.k8s.io_{kind}.yaml"
            for kind in (
                "backendtlspolicies",
                "gatewayclasses",
                "gateways",
                "grpcroutes",
                "httproutes",
                "listenersets",
                "referencegrants",
                "tcproutes",
                "tlsroutes",
            )
        )
    },
)
KNATIVE = Module(
    "knative",
    "devcluster/knative",
    "tool",
    _same("activator", "autoscaler", "controller", "queue", "webhook"),
    weight=1.5,
    env={"CGO_ENABLED": "0"},
    # Without what needs a metrics server, cert-manager or a registry.
    data={
        "knative.dev/caching": ("config/image.yaml",),
        "knative.dev/networking": (
            "config/certificate.yaml",
            "config/domain-claim.yaml",
            "config/ingress.yaml",
            "config/serverlessservice.yaml",
            "config/config-network.yaml",
        ),
        "knative.dev/serving": tuple(
            f"config/core/{file}.yaml"
            for file in (
                "100-namespace",
                "200-serviceaccount",
                "200-roles/activator",
                "200-roles/addressable-resolvers-clusterrole",
                "200-roles/clusterrole",
                "200-roles/clusterrole-namespaced",
                "200-roles/podspecable-bindings-clusterrole",
                "300-resources/configuration",
                "300-resources/domain-mapping",
                "300-resources/metric",
                "300-resources/podautoscaler",
                "300-resources/revision",
                "300-resources/route",
                "300-resources/service",
                "configmaps/autoscaler",
                "configmaps/certmanager",
                "configmaps/defaults",
                "configmaps/deployment",
                "configmaps/domain",
                "configmaps/features",
                "configmaps/gc",
                "configmaps/leader-election",
                "configmaps/logging",
                "configmaps/observability",
                "configmaps/tracing",
                "deployments/activator",
                "deployments/autoscaler",
                "deployments/controller",
                "deployments/webhook",
                "webhooks/configmap-validation",
                "webhooks/defaulting",
                "webhooks/resource-validation",
                "webhooks/secret",
            )
        ),
    },
)
KNATIVE_INGRESS = Module(
    "knative-ingress",
    "devcluster/knative-ingress",
    "tool",
    {"controller": "ingress"},
    weight=0.5,
    env={"CGO_ENABLED": "0"},
    # Without its webhook, which only checks config-gateway.
    data={
        "knative.dev/net-gateway-api": (
            "config/200-clusterrole.yaml",
            "config/300-controller.yaml",
            "config/config-gateway.yaml",
        )
    },
)
PAUSE = Module("pause", "images/pause", ".", _same("pause"), weight=0.1, env={"CGO_ENABLED": "0"})

CONTROL_PLANE_MODULES = (KUBERNETES,)
NODE_MODULES = (KUBERNETES, CONTAINERD, COREDNS, PAUSE)
ALL = (*NODE_MODULES, KWOK, KUEUE, GATEWAY_API, KNATIVE, KNATIVE_INGRESS)


@dataclass(frozen=True)
class Binaries:
    """Paths of the built programs."""

    paths: Mapping[str, Path]

    def path(self, program: str) -> Path:
        """Path of a program."""
        return self.paths[program]


def ensure(modules: tuple[Module, ...], report: Report) -> Binaries:
    """Build what is missing; a concurrent builder waits for the first one and reuses its result.

    Raises:
        Permanent: NoGo when Go is missing, BuildFailed with the end of the compiler's output.
    """
    total = sum(module.weight for module in modules)
    done = 0.0
    paths: dict[str, Path] = {}
    for module in modules:
        folder = _ensure_one(module, _scaled(report, done / total, module.weight / total))
        paths |= {program: folder / program for program in module.programs.values()}
        done += module.weight
    report("programs are built", 1.0)
    return Binaries(paths)


def is_built(module: Module) -> bool:
    """Whether the module is built already."""
    return _folder(module).is_dir()


def data_file(module: Module) -> Path:
    """The YAML files of a module's `data`, once it is built."""
    return _folder(module) / _DATA


def cache_key(module: Module, source: Path) -> str:
    """Hash of every build input except the compiler."""
    digest = hashlib.sha256()
    files = [file for listed in module.data.values() for file in listed]
    for part in (module.target, *flags(module), *files, repr(sorted(module.env.items()))):
        digest.update(part.encode() + b"\0")
    for path in sorted([*source.glob("go.*"), *source.glob("*.go")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def flags(module: Module) -> tuple[str, ...]:
    """Build flags; without inlining the build takes two thirds of the time."""
    return ("-trimpath", "-gcflags=all=-l", "-ldflags", f"-s -w {module.link}".strip())


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/paddlewheel, else ~/.cache/paddlewheel."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "paddlewheel"


def deploy_folder() -> Path:
    """The checkout's folder deploy/, which may not exist."""
    return Path(__file__).resolve().parents[5] / "deploy"


def _source(module: Module) -> Path:
    source = deploy_folder() / module.folder
    if not (source / "go.mod").exists():
        raise Permanent("NoSource", f"{source}/go.mod is missing; run paddlewheel from a checkout (uv sync)")
    return source


def _folder(module: Module) -> Path:
    return cache_dir() / "bin" / f"{module.name}-{cache_key(module, _source(module))}"


def _ensure_one(module: Module, report: Report) -> Path:
    folder = _folder(module)
    if folder.is_dir():
        return folder
    report(f"preparing {module.name}", 0.0)
    with _build_lock(module):
        if not folder.is_dir():
            _build_into(folder, module, report)
    return folder


def _build_into(folder: Path, module: Module, report: Report) -> None:
    """Build in a temporary directory and rename it: a killed build must not look complete."""
    fresh = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    if module.programs:
        env = {**module.env, "GOBIN": str(fresh)}
        build(GoBuild(module.name, _source(module), module.target, flags(module), env), report)
    for built, kept in module.programs.items():
        (fresh / built).rename(fresh / kept)
    if module.data:
        (fresh / _DATA).write_text(_joined_data(module))
    fresh.rename(folder)


def _joined_data(module: Module) -> str:
    folders = {name: module_folder(_source(module), name) for name in module.data}
    files = [folders[name] / file for name, listed in module.data.items() for file in listed]
    return "\n---\n".join(file.read_text() for file in files)


@contextmanager
def _build_lock(module: Module) -> Iterator[None]:
    path = cache_dir() / "bin" / f".{module.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _scaled(report: Report, start: float, share: float) -> Report:
    return lambda message, fraction: report(message, start + share * fraction)
