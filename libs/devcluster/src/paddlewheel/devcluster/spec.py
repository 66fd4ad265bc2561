"""The spec of a cluster, as a user writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from ipaddress import IPv4Network

from paddlewheel.core.errors import Permanent

DEFAULT_RANGE = "198.18.0.0/15"
MAX_NODES = 15
ADDONS: Mapping[str, tuple[str, ...]] = {"gateway": (), "knative": ("gateway",)}
"""Add-on to the add-ons that it needs, which are installed before it."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class ClusterSpec:
    """Desired shape of one cluster.

    Args:
        name: DNS label of at most 40 characters; names the cluster's directory and kubeconfig context.
        nodes: number of real nodes (kubelet with containerd); ignored when control_plane_only.
        control_plane_only: only etcd, API server, controller manager and scheduler; pods never run.
        fake_nodes: number of nodes simulated by kwok; their pods become Running without a process.
        address_range: private range, /19 or larger; every cluster takes one /19 of it.
        addons: names in `ADDONS`. The add-ons that they need are added. More can be installed later.
        strict_owners: whether a client needs the right to update an owner's finalizers to create an object
            that blocks the owner's deletion, as in OpenShift (admission plugin
            OwnerReferencesPermissionEnforcement).
    """

    name: str = "demo"
    nodes: int = 2
    control_plane_only: bool = False
    fake_nodes: int = 0
    address_range: str = DEFAULT_RANGE
    addons: tuple[str, ...] = ()
    strict_owners: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "addons", _with_needed(self.addons))
        if not 1 <= self.nodes <= MAX_NODES:
            raise Permanent(
                "InvalidNodes",
                f"nodes: {self.nodes} is not between 1 and {MAX_NODES}; for many nodes use fake_nodes",
            )
        if self.fake_nodes < 0:
            raise Permanent("InvalidFakeNodes", f"fake_nodes: {self.fake_nodes} is negative; use 0 or more")
        if self.addons and self.control_plane_only:
            raise Permanent(
                "NoNodes",
                f"addons: {', '.join(self.addons)} needs nodes to run on; leave out --control-plane-only",
            )
        _check_range(self.address_range)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the real nodes."""
        if self.control_plane_only:
            return ()
        return tuple(f"{self.name}-{number}" for number in range(1, self.nodes + 1))

    def differences(self, asked: ClusterSpec) -> tuple[str, ...]:
        """Each field in which `asked` differs, with both values; add-ons can be installed at any time."""
        same = replace(asked, addons=())
        return tuple(
            f"{name} {own}, not {wanted}"
            for (name, own), wanted in zip(
                replace(self, addons=()).to_json().items(), same.to_json().values(), strict=True
            )
            if own != wanted
        )

    def with_addons(self, addons: Iterable[str]) -> ClusterSpec:
        """The same cluster with these as well."""
        return replace(self, addons=(*self.addons, *addons))

    def options(self) -> tuple[str, ...]:
        """The options of `paddlewheel cluster up` that give this spec."""
        plain = tuple(
            f"--{field.name.replace('_', '-')}" + ("" if value is True else f" {value}")
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name == "name"
            if field.name != "addons"
        )
        return (*plain, *(f"--with {addon}" for addon in self.addons))

    def to_json(self) -> dict[str, object]:
        """The fields as JSON values, for the cluster's record."""
        return asdict(self)


def check_name(name: str) -> None:
    """Names become paths, which are removed with the cluster. Raises Permanent."""
    if not _NAME.fullmatch(name):
        raise Permanent(
            "InvalidName",
            f"name: {name!r} is not a DNS label of at most 40 characters; "
            "use lower-case letters, digits and '-', such as demo",
        )


def _with_needed(addons: Iterable[str]) -> tuple[str, ...]:
    """In the order in which they are installed, each once."""
    wanted = set(addons)
    if unknown := sorted(wanted - ADDONS.keys()):
        raise Permanent("InvalidAddon", f"addons: no {', '.join(unknown)}; there are: {', '.join(ADDONS)}")
    needed = {need for addon in wanted for need in ADDONS[addon]}
    return tuple(addon for addon in ADDONS if addon in wanted | needed)


def _check_range(text: str) -> None:
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise Permanent(
            "InvalidRange", f"address_range: {error}; use an IPv4 network such as {DEFAULT_RANGE}"
        ) from error
    if network.prefixlen > 19 or network.is_loopback:
        raise Permanent("InvalidRange", f"address_range: {text} must contain a /19 outside 127.0.0.0/8")
