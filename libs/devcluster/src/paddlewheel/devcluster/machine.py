"""Properties of the machine that several modules need."""

from __future__ import annotations

import json
import os
from contextlib import suppress
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


def inotify_instances() -> tuple[int, int]:
    """The inotify instances that processes of this user have open, and the user's limit."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    used, inotify = 0, Path("anon_inode:inotify")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            used += link.lstat().st_uid == os.getuid() and link.readlink() == inotify
    return used, limit
