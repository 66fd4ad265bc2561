"""The one thing of a cluster that the host sees: a veth pair and a route."""

from __future__ import annotations

import json
import re
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.addresses import AddressPlan, slot_count
from paddlewheel.devcluster.commands import run, succeeds
from paddlewheel.devcluster.lan import UPLINK
from paddlewheel.devcluster.spec import ClusterSpec

_SLOT_INTERFACE = re.compile(r"pw\d+")


def is_slot_interface(name: str) -> bool:
    """Whether an interface of the host has a cluster's name."""
    return _SLOT_INTERFACE.fullmatch(name) is not None


def links() -> dict[str, str]:
    """The host's slot interfaces with their owners' directories (kept in the interface's alias)."""
    found = json.loads(run(["ip", "-j", "link", "show"]))
    return {link["ifname"]: link.get("ifalias", "") for link in found if is_slot_interface(link["ifname"])}


def free_slot(spec: ClusterSpec, taken: frozenset[int]) -> int:
    """The first slot that neither a cluster of this home nor a link of the machine has.

    Raises:
        Permanent: NoFreeSlot when the range is full.
    """
    present = links()
    for slot in range(slot_count(spec.address_range)):
        if slot not in taken and f"pw{slot}" not in present:
            return slot
    raise Permanent(
        "NoFreeSlot",
        f"{spec.address_range} is full; take one down (`paddlewheel cluster list`) or give a larger range",
    )


def claim_link(plan: AddressPlan, owner: Path) -> None:
    """Make the veth pair, both ends still on the host: the kernel lets only one cluster have the name.

    Raises:
        Permanent: SlotTaken when another home's cluster has it.
    """
    holder = links().get(plan.interface)
    if holder == str(owner):
        release_link(plan, owner)
    elif holder is not None:
        raise Permanent(
            "SlotTaken",
            f"{plan.interface} belongs to {holder or 'something else'}; take that cluster down first",
        )
    run(["ip", "link", "add", plan.interface, "type", "veth", "peer", "name", _peer(plan)])
    run(["ip", "link", "set", plan.interface, "alias", str(owner)])


def connect(plan: AddressPlan, pid: int) -> None:
    """Push the inner end into the cluster; the host gets its address and the route to pods and services."""
    run(["ip", "link", "set", _peer(plan), "netns", str(pid), "name", UPLINK])
    run(["ip", "addr", "add", f"{plan.gateway}/{plan.link.prefixlen}", "dev", plan.interface])
    run(["ip", "link", "set", plan.interface, "up"])
    run(["ip", "route", "replace", str(plan.block), "via", str(plan.inner), "dev", plan.interface])


def release_link(plan: AddressPlan, owner: Path) -> None:
    """Delete the pair; it may be gone already with the cluster's namespace."""
    if links().get(plan.interface) == str(owner):
        succeeds(["ip", "link", "del", plan.interface])


def _peer(plan: AddressPlan) -> str:
    return f"{plan.interface}i"
