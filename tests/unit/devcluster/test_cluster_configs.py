"""Rendered configuration of a node's programs."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from paddlewheel.devcluster import configs
from paddlewheel.devcluster.addresses import address_plan
from paddlewheel.devcluster.binaries import Binaries
from paddlewheel.devcluster.certs import Authority
from paddlewheel.devcluster.control_plane import ControlPlane, control_plane_units
from paddlewheel.devcluster.spec import DEFAULT_RANGE
from paddlewheel.devcluster.state import ClusterDirs

ADDRESSES = address_plan(DEFAULT_RANGE, 0)


def make_plane(folder: Path) -> ControlPlane:
    return ControlPlane("demo", ClusterDirs(folder), ADDRESSES, Authority(folder / "pki", "demo"))


@pytest.mark.parametrize("strict", [False, True])
def test_the_api_server_checks_owners_finalizers_where_it_is_asked_to(tmp_path: Path, strict: bool) -> None:
    plane = replace(make_plane(tmp_path), strict_owners=strict)
    units = control_plane_units(plane, Binaries(defaultdict(lambda: tmp_path)))
    [server] = [unit for unit in units if unit.name == "kube-apiserver"]
    [plugins] = [argument for argument in server.argv if argument.startswith("--enable-admission-plugins=")]
    assert "NodeRestriction" in plugins
    assert ("OwnerReferencesPermissionEnforcement" in plugins) is strict


def test_containerd_uses_our_pause_image_instead_of_a_registry() -> None:
    parsed = tomllib.loads(configs.containerd(Path("/cni"), Path("/bin")))
    plugins = parsed["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == configs.PAUSE_IMAGE
    assert plugins["io.containerd.cri.v1.runtime"]["cni"] == {"bin_dirs": ["/bin"], "conf_dir": "/cni"}
    assert plugins["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is True


def test_containerd_imports_no_host_configuration() -> None:
    assert tomllib.loads(configs.containerd(Path("/cni"), Path("/bin")))["imports"] == []


def test_pods_get_addresses_from_their_nodes_range() -> None:
    address = configs.cni(ADDRESSES.node_pods(1))["plugins"][0]["ipam"]
    assert address["ranges"] == [[{"subnet": "198.18.17.0/24"}]]


def test_kubelet_uses_the_clusters_dns_and_reserves_nothing(tmp_path: Path) -> None:
    plane = make_plane(tmp_path)
    serving = plane.authority.server("kubelet", "n", ["n"], [ADDRESSES.node(0)])
    config = configs.kubelet(plane, ADDRESSES.node(0), serving, tmp_path / "resolv.conf")
    assert config["clusterDNS"] == ["198.18.0.2"]
    assert config["failCgroupV1"] is False
    assert config["cgroupsPerQOS"] is False
    assert config["enforceNodeAllocatable"] == []


def test_images_are_never_garbage_collected(tmp_path: Path) -> None:
    plane = make_plane(tmp_path)
    serving = plane.authority.server("kubelet", "n", ["n"], [ADDRESSES.node(0)])
    config = configs.kubelet(plane, ADDRESSES.node(0), serving, tmp_path / "resolv.conf")
    assert config["imageGCHighThresholdPercent"] == 100


def test_kube_proxy_uses_nftables_and_does_not_change_the_hosts_conntrack() -> None:
    config = configs.kube_proxy(ADDRESSES, 1, "demo-2", Path("/kubeconfig"))
    assert config["mode"] == "nftables"
    assert config["bindAddress"] == "198.18.0.12"
    assert config["conntrack"]["maxPerCore"] == 0
