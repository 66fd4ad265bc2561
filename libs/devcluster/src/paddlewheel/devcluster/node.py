"""One node: containerd, kubelet and kube-proxy in namespaces of their own; and the cluster's DNS."""

from __future__ import annotations

import json
from pathlib import Path

from paddlewheel.devcluster import configs
from paddlewheel.devcluster.binaries import Binaries
from paddlewheel.devcluster.bootstrap import DNS_USER
from paddlewheel.devcluster.commands import CLEAN_ENVIRONMENT
from paddlewheel.devcluster.control_plane import ControlPlane
from paddlewheel.devcluster.lan import FORWARDING, namespace_file
from paddlewheel.devcluster.namespace import supervised
from paddlewheel.devcluster.plan import Plan, Unit, save
from paddlewheel.devcluster.state import NodeDirs

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
MODELS = "/var/lib/paddlewheel-models"
"""Folder of every node in which servers of models keep what they fetch."""


def node_unit(dirs: NodeDirs, name: str) -> Unit:
    """The node as a unit of the cluster's process 1: one child that holds everything else."""
    return Unit(
        f"node-{name}", supervised(dirs.plan, network=namespace_file(name)), after=("kube-apiserver",)
    )


def write_node(
    plane: ControlPlane, index: int, name: str, binaries: Binaries, cgroups: tuple[tuple[str, str], ...]
) -> None:
    """Write a node's configuration and plan; `cgroups` are (subtree, mount) pairs."""
    dirs = plane.dirs.node(name)
    dirs.status.unlink(missing_ok=True)
    units = (
        _containerd(plane, index, dirs, binaries),
        _kubelet(plane, index, name, binaries),
        _kube_proxy(plane, index, name, binaries),
    )
    plan = Plan(
        log_dir=str(dirs.logs),
        status_file=str(dirs.status),
        units=units,
        setup=_setup(dirs),
        writes=(FORWARDING,),
        cgroups=cgroups,
    )
    save(plan, dirs.plan)


def _setup(dirs: NodeDirs) -> tuple[tuple[str, ...], ...]:
    """Bind-mount private directories; /var/lib is shared so that FUSE mounts propagate to other pods."""
    return (
        ("mount", "--bind", str(dirs.var_lib), "/var/lib"),
        ("mount", "--make-shared", "/var/lib"),
        ("install", "-d", "-m", "1777", MODELS),
        ("mount", "--bind", str(dirs.var_log), "/var/log"),
        ("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"),
        ("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"),
        ("mkdir", "-p", "/run/lock"),
        *_kernel_settings(dirs.config),
    )


def _kernel_settings(config: Path) -> tuple[tuple[str, ...], ...]:
    """The kubelet would set these for the whole machine; bind mounts make it find them set already."""
    folder = config / "kernel"
    folder.mkdir(exist_ok=True)
    commands = []
    present = {n: v for n, v in configs.KERNEL_SETTINGS.items() if Path("/proc/sys", n).exists()}
    for name, value in present.items():
        file = folder / name.replace("/", "-")
        file.write_text(f"{value}\n")
        commands.append(("mount", "--bind", str(file), f"/proc/sys/{name}"))
    return tuple(commands)


def _containerd(plane: ControlPlane, index: int, dirs: NodeDirs, binaries: Binaries) -> Unit:
    program = binaries.path("containerd")
    network = dirs.config / "cni"
    network.mkdir(exist_ok=True)
    (network / "10-paddlewheel.conflist").write_text(
        json.dumps(configs.cni(plane.addresses.node_pods(index)))
    )
    config = dirs.config / "containerd.toml"
    config.write_text(configs.containerd(network, program.parent))
    path = f"{program.parent}:{CLEAN_ENVIRONMENT['PATH']}"
    argv = (str(program), "--config", str(config))
    return Unit("containerd", argv, ready=f"unix:{CONTAINERD_SOCKET}", env={"PATH": path})


def _kubelet(plane: ControlPlane, index: int, name: str, binaries: Binaries) -> Unit:
    address, config = plane.addresses.node(index), plane.dirs.node(name).config
    serving = plane.authority.server(f"kubelet-serving-{name}", name, [name], [address])
    kubeconfig = plane.kubeconfig(f"kubelet-{name}", f"system:node:{name}", "system:nodes")
    resolver = config / "resolv.conf"
    resolver.write_text(f"nameserver {plane.addresses.inner}\n")
    text = json.dumps(configs.kubelet(plane, address, serving, resolver), indent=1)
    (config / "kubelet.json").write_text(text)
    argv = (
        str(binaries.path("kubelet")),
        f"--config={config / 'kubelet.json'}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        f"--node-ip={address}",
    )
    return Unit("kubelet", argv, after=("containerd",), ready=f"tcp:{address}:10250")


def _kube_proxy(plane: ControlPlane, index: int, name: str, binaries: Binaries) -> Unit:
    kubeconfig = plane.kubeconfig("kube-proxy", "system:kube-proxy")
    config = plane.dirs.node(name).config / "kube-proxy.json"
    config.write_text(json.dumps(configs.kube_proxy(plane.addresses, index, name, kubeconfig), indent=1))
    argv = (str(binaries.path("kube-proxy")), f"--config={config}")
    return Unit("kube-proxy", argv, ready="http://127.0.0.1:10256/livez")


def dns_unit(plane: ControlPlane, binaries: Binaries) -> Unit:
    """CoreDNS as a process of the control plane: it needs no pod, no image and no node."""
    kubeconfig = plane.kubeconfig("coredns", DNS_USER)
    config = plane.dirs.root / "Corefile"
    config.write_text(configs.corefile(kubeconfig))
    argv = (str(binaries.path("coredns")), "-conf", str(config))
    return Unit("coredns", argv, after=("kube-apiserver",), ready="http://127.0.0.1:8181/ready")
