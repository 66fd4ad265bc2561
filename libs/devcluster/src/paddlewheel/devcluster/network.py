"""The host's side of a cluster's network: a veth pair and a route."""

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
    """Whether this is the name of a cluster's host interface."""
    return _SLOT_INTERFACE.fullmatch(name) is not None


def links() -> dict[str, str]:
    """The host's slot interfaces and their owners' directories, which are stored in the interface alias."""
    found = json.loads(run(["ip", "-j", "link", "show"]))
    return {link["ifname"]: link.get("ifalias", "") for link in found if is_slot_interface(link["ifname"])}


def free_slot(spec: ClusterSpec, taken: frozenset[int]) -> int:
    """The first slot used by neither a cluster of this home nor an interface of the machine.

    Raises:
        Permanent: NoFreeSlot when the range is full.
    """
    present = links()
    for slot in range(slot_count(spec.address_range)):
        if slot not in taken and f"pw{slot}" not in present:
            return slot
    raise Permanent(
        "NoFreeSlot",
        f"{spec.address_range} is full; remove a cluster (`paddlewheel cluster list`) or use a larger range",
    )


def claim_link(plan: AddressPlan, owner: Path) -> None:
    """Create the veth pair with both ends on the host: the kernel grants the name to one cluster only.

    Raises:
        Permanent: SlotTaken when a cluster of another home has it.
    """
    holder = links().get(plan.interface)
    if holder == str(owner):
        release_link(plan, owner)
    elif holder is not None:
        raise Permanent(
            "SlotTaken",
            f"{plan.interface} belongs to {holder or 'something else'}; remove that cluster first",
        )
    run(["ip", "link", "add", plan.interface, "type", "veth", "peer", "name", _peer(plan)])
    run(["ip", "link", "set", plan.interface, "alias", str(owner)])


def connect(plan: AddressPlan, pid: int) -> None:
    """Give the host its address and the route to pods and Services, and move the inner end into the cluster.

    The move comes last, because the cluster continues as soon as it has its end. If the process is killed
    before, the cluster has not started and the next start begins again; it is never running without a route
    to it.
    """
    run(["ip", "addr", "add", f"{plan.gateway}/{plan.link.prefixlen}", "dev", plan.interface])
    run(["ip", "link", "set", plan.interface, "up"])
    run(["ip", "route", "replace", str(plan.block), "via", str(plan.inner), "dev", plan.interface])
    run(["ip", "link", "set", _peer(plan), "netns", str(pid), "name", UPLINK])


def release_link(plan: AddressPlan, owner: Path) -> None:
    """Delete the pair, which may be gone already with the cluster's namespace."""
    if links().get(plan.interface) == str(owner):
        succeeds(["ip", "link", "del", plan.interface])


def _peer(plan: AddressPlan) -> str:
    return f"{plan.interface}i"
