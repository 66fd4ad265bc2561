"""The address plan of a cluster: one /19 per slot, subdivided the same way in every cluster.

+0.0/24    LAN of the host (.1), the control plane (.2) and the nodes (from .11)
+4.0/22    Services (.1 is the API server)
+16.0/20   pods, one /24 per node
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

BLOCK_PREFIX = 19
API_PORT = 6443


@dataclass(frozen=True)
class AddressPlan:
    """The addresses of one slot's cluster."""

    slot: int
    block: IPv4Network

    @property
    def link(self) -> IPv4Network:
        """LAN of the host, the control plane and the nodes."""
        return self._part(0, 24)

    @property
    def gateway(self) -> IPv4Address:
        """The host, as seen from inside."""
        return self.link[1]

    @property
    def inner(self) -> IPv4Address:
        """The cluster, as seen from the host: API server, DNS."""
        return self.link[2]

    @property
    def services(self) -> IPv4Network:
        """ClusterIP range."""
        return self._part(4, 22)

    @property
    def pods(self) -> IPv4Network:
        """Pod range of all nodes."""
        return self._part(16, 20)

    @property
    def interface(self) -> str:
        """The host's end of the veth pair."""
        return f"pw{self.slot}"

    @property
    def api_url(self) -> str:
        """URL of the API server, valid inside the cluster and on the host."""
        return f"https://{self.inner}:{API_PORT}"

    def node(self, index: int) -> IPv4Address:
        """InternalIP of the node with this zero-based index."""
        return self.link[11 + index]

    def node_pods(self, index: int) -> IPv4Network:
        """Pod range of the node with this zero-based index."""
        return list(self.pods.subnets(new_prefix=24))[index]

    def _part(self, offset_24ths: int, prefix: int) -> IPv4Network:
        return IPv4Network((self.block.network_address + offset_24ths * 256, prefix))


def slot_count(address_range: str) -> int:
    """Number of clusters that fit into the range."""
    return int(2 ** (BLOCK_PREFIX - IPv4Network(address_range).prefixlen))


def address_plan(address_range: str, slot: int) -> AddressPlan:
    """The address plan of one slot; slots are numbered from 0."""
    first = IPv4Network(address_range).network_address
    step = 2 ** (32 - BLOCK_PREFIX)
    return AddressPlan(slot, IPv4Network((first + slot * step, BLOCK_PREFIX)))
