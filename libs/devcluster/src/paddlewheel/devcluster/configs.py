"""Renders the configuration files of a node's programs; has no side effects."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from paddlewheel.devcluster.addresses import AddressPlan
from paddlewheel.devcluster.certs import Identity
from paddlewheel.devcluster.control_plane import ControlPlane

PAUSE_IMAGE = "docker.io/paddlewheel/pause:dev"
DNS_DOMAIN = "cluster.local"
KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Kernel settings that the kubelet requires, by file under /proc/sys."""


def containerd(cni_config: Path, programs: Path) -> str:
    """containerd's configuration; all other paths are the defaults, which are directories of the node.

    AppArmor is disabled: its profile would be loaded for the whole machine.
    """
    return f"""\
version = 3
imports = []

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{programs}']
  conf_dir = '{cni_config}'

[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'

[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true

[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""


def cni(pods: IPv4Network) -> dict[str, Any]:
    """Point-to-point links: every packet is routed, so nftables sees replies to a Service's client and can
    translate them back; on a bridge this would require br_netfilter. Leases are stored in the node's /run."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": str(pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni/networks",
    }
    return {
        "cniVersion": "1.0.0",
        "name": "paddlewheel",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(plane: ControlPlane, address: IPv4Address, serving: Identity, resolver: Path) -> dict[str, Any]:
    """A kubelet that shares the machine with others: it reserves no resources and evicts nothing."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(address),
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.authority.identity.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [str(plane.addresses.inner)],
        "clusterDomain": DNS_DOMAIN,
        "resolvConf": str(resolver),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        **_no_reservations(),
    }


def _no_reservations() -> dict[str, Any]:
    return {
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        # There is no registry: an image that was garbage-collected could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "registryPullQPS": 0,
        "serializeImagePulls": False,
    }


def kube_proxy(addresses: AddressPlan, index: int, node: str, kubeconfig: Path) -> dict[str, Any]:
    """kube-proxy in nftables mode; conntrack limits belong to the host and are not changed."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "bindAddress": str(addresses.node(index)),
        "hostnameOverride": node,
        "clusterCIDR": str(addresses.pods),
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }


def corefile(kubeconfig: Path) -> str:
    """DNS for the cluster's own names. No cache: answers come from memory anyway, and a cached NXDOMAIN
    would delay clients that wait for a name to appear."""
    return f"""\
.:53 {{
    errors
    ready 127.0.0.1:8181
    kubernetes {DNS_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
"""
