"""What a virtual machine boots: Debian's kernel, and busybox with nats-server in an initramfs.

The packages are unpacked into the cache; none of them is installed on this machine.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paddlewheel.devcluster.binaries import cache_dir
from paddlewheel.devcluster.commands import run, tool
from paddlewheel.devcluster.doctor import INSTALLATION_TIMEOUT_SECONDS, apt_environment

KERNEL = "linux-image-cloud-amd64"
"""Depends on the package of the current kernel, which has ext4 built in."""
BUSYBOX = "busybox-static"
MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "failover",
    "net_failover",
    "virtio_net",
)
"""In the order in which they are loaded."""
_INIT = Path(__file__).with_name("init.sh")
_DIRECTORY = stat.S_IFDIR | 0o755
_FILE = stat.S_IFREG | 0o755
_END = "TRAILER!!!"


@dataclass(frozen=True)
class System:
    """A kernel, and the files that every machine has."""

    kernel: Path
    files: Mapping[str, bytes]


def find_system() -> System:
    """Unpack the packages the first time. Raises Permanent when they cannot be downloaded."""
    unpacked = cache_dir() / "chaos-kernel"
    if not unpacked.is_dir():
        _unpack_into(unpacked)
    [kernel] = (unpacked / "boot").glob("vmlinuz-*")
    modules = {path.stem: path for path in unpacked.rglob("*.ko")}
    files = {f"modules/{name}.ko": modules[name].read_bytes() for name in MODULES}
    return System(
        kernel,
        {
            **files,
            "modules/order": "\n".join(MODULES).encode(),
            "bin/busybox": (unpacked / "bin" / "busybox").read_bytes(),
            "bin/nats-server": Path(tool("nats-server")).read_bytes(),
            "init": _INIT.read_bytes(),
        },
    )


def _unpack_into(folder: Path) -> None:
    """All of it, or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chaos-kernel-", dir=folder.parent) as temporary:
        _apt("apt-get", "update")
        [current] = _apt("apt-cache", "depends", "--important", KERNEL).split()[2:]
        _apt("env", f"--chdir={temporary}", "apt-get", "download", current, BUSYBOX)
        unpacked = Path(temporary) / "unpacked"
        for package in Path(temporary).glob("*.deb"):
            run(("dpkg", "--extract", str(package), str(unpacked)))
        unpacked.rename(folder)


def _apt(*command: str) -> str:
    return run(command, env=apt_environment(), timeout=INSTALLATION_TIMEOUT_SECONDS)


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive (`cpio -H newc`) with files and the folders in which they lie, for the kernel to unpack."""
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents} - {"."}
    entries = [
        *(_entry(folder, _DIRECTORY) for folder in sorted(folders)),
        *(_entry(name, _FILE, content) for name, content in files.items()),
        _entry(_END, 0),
    ]
    return b"".join(entries)


def _entry(name: str, mode: int, content: bytes = b"") -> bytes:
    """Each field has eight hexadecimal digits; inode, owner, time, device and checksum are 0."""
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _aligned(header + path) + _aligned(content)


def _aligned(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
