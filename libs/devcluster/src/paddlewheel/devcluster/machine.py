"""Properties of the machine that several modules need."""

from __future__ import annotations

import ctypes
import json
import os
from ipaddress import IPv4Network
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.cgroups import hierarchies
from paddlewheel.devcluster.commands import run
from paddlewheel.devcluster.network import is_slot_interface

HIDDEN_ON_NODES = (Path("/var/lib"), Path("/var/log"), Path("/run"), Path("/dev"))
"""Directories that every node has of its own: nothing a node needs from the host may be in them."""


def has_filesystem(name: str) -> bool:
    """Whether the kernel currently supports this file system."""
    rows = Path("/proc/filesystems").read_text().splitlines()
    return name in (row.split()[-1] for row in rows)


def has_cgroups() -> bool:
    """Whether a cgroup hierarchy that can limit processes is mounted."""
    return any(item.unified or item.mount.name == "memory" for item in hierarchies())


def foreign_routes(address_range: str) -> tuple[str, ...]:
    """The host's routes into the range that belong to no cluster, for example a VPN's."""
    wanted = IPv4Network(address_range)
    routes = json.loads(run(("ip", "-j", "-4", "route", "show")))
    foreign = (route for route in routes if not is_slot_interface(route.get("dev", "")))
    return tuple(
        f"{route['dst']} dev {route.get('dev', '?')}"
        for route in foreign
        if route["dst"] != "default" and IPv4Network(route["dst"]).overlaps(wanted)
    )


def check_visible(folder: Path, variable: str) -> None:
    """Reject a directory that would be hidden from a node.

    Raises:
        Permanent: HiddenDirectory naming the variable to set.
    """
    for hidden in HIDDEN_ON_NODES:
        if folder.is_relative_to(hidden):
            raise Permanent(
                "HiddenDirectory",
                f"{folder} is in {hidden}, which every node has of its own; set {variable}",
            )


def free_inotify_instances(most: int) -> int:
    """The number of inotify instances that can still be opened, up to `most`: it opens and closes them."""
    libc, opened = ctypes.CDLL(None), list[int]()
    try:
        while len(opened) < most and (file := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            opened.append(file)
    finally:
        for file in opened:
            os.close(file)
    return len(opened)
