"""Renders the commands that create the network inside a cluster.

The cluster's own namespace is a switch: one bridge joins the link to the host, the control plane's address
and one veth pair per node. Each node has a network namespace and a kube-proxy of its own, so hostPorts,
host networks, NodePorts and "local" endpoints behave as on separate machines. Pod traffic is routed.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddlewheel.devcluster.addresses import AddressPlan

Command = tuple[str, ...]

UPLINK = "eth0"
_BRIDGE = "br0"
FORWARDING = ("/proc/sys/net/ipv4/ip_forward", "1")


def namespace_file(node: str) -> str:
    """Path at which `ip netns` keeps a node's network namespace, in the cluster's own /run."""
    return f"/run/netns/{node}"


def lan_setup(plan: AddressPlan, nodes: Sequence[str]) -> tuple[Command, ...]:
    """Commands that the cluster's process 1 runs once the link to the host exists."""
    commands = [*_switch(plan)]
    for index, node in enumerate(nodes):
        commands += [*_cable(index, node), *_node_addresses(plan, index, node)]
        commands += [*_node_routes(plan, index, node, len(nodes)), _pods_route(plan, index)]
    if nodes:
        commands.append(("ip", "route", "add", str(plan.services), "via", str(plan.node(0))))
    return tuple(commands)


def _switch(plan: AddressPlan) -> tuple[Command, ...]:
    return (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", _BRIDGE, "type", "bridge"),
        ("ip", "link", "set", UPLINK, "master", _BRIDGE, "up"),
        ("ip", "addr", "add", f"{plan.inner}/{plan.link.prefixlen}", "dev", _BRIDGE),
        ("ip", "link", "set", _BRIDGE, "up"),
        ("ip", "route", "add", "default", "via", str(plan.gateway)),
    )


def _cable(index: int, node: str) -> tuple[Command, ...]:
    port = f"port{index}"
    return (
        ("ip", "netns", "add", node),
        ("ip", "link", "add", port, "type", "veth", "peer", "name", UPLINK, "netns", node),
        ("ip", "link", "set", port, "master", _BRIDGE, "up"),
    )


def _node_addresses(plan: AddressPlan, index: int, node: str) -> tuple[Command, ...]:
    return (
        ("ip", "-n", node, "link", "set", "lo", "up"),
        ("ip", "-n", node, "addr", "add", f"{plan.node(index)}/{plan.link.prefixlen}", "dev", UPLINK),
        ("ip", "-n", node, "link", "set", UPLINK, "up"),
        ("ip", "-n", node, "route", "add", "default", "via", str(plan.gateway)),
    )


def _node_routes(plan: AddressPlan, index: int, node: str, count: int) -> tuple[Command, ...]:
    """Routes from one node to the pods of all others."""
    others = (other for other in range(count) if other != index)
    return tuple(("ip", "-n", node, *_pods_route(plan, other)[1:]) for other in others)


def _pods_route(plan: AddressPlan, index: int) -> Command:
    return ("ip", "route", "add", str(plan.node_pods(index)), "via", str(plan.node(index)))
