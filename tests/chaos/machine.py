"""A virtual machine with one NATS server: when its power is cut, everything that is not on its disk is lost.

kill -9 of nats-server loses nothing that it has written: the kernel has it, and writes it to the disk later.
When QEMU is killed, the guest's kernel is gone with its page cache.
"""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from tests.chaos.disk import Disk

from paddlewheel.devcluster.commands import ending_with_us

PROGRAM = "qemu-system-x86_64"
PACKAGE = "qemu-system-x86"
MEMORY = "512M"
"""The limit of the chart's pod."""
READY = "/healthz?js-server-only=true"
_GROUP = "239.192.0.1"
_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 random.trust_cpu=on "
    # On a busy host an emulated machine fails the kernel's check of timers, and measures its TSC wrong.
    "no_timer_check tsc=unstable clocksource=hpet"
)
_KVM = Path("/dev/kvm")


@dataclass
class Machine:
    """A server `nats-<number>`, whose disk and console lie in `folder`.

    Args:
        rack: UDP port of the network that machines share.
        ports: for clients, and of the monitor.
    """

    folder: Path
    number: int
    kernel: Path
    archive: Path
    rack: int
    ports: Sequence[int]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.ports[0]}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.ports[1]}"

    @property
    def console(self) -> str:
        """What kernel and server have said since the disk was made."""
        return (self.folder / "console.log").read_text(errors="replace")

    def power_on(self) -> None:
        """Start the server on what its disk has; return at once."""
        self.wait_off()
        with (self.folder / "console.log").open("ab") as log:
            command = [*ending_with_us(), *self._command(), *self.disk.plug_in()]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def cut_power(self) -> None:
        """SIGKILL for QEMU; idempotent."""
        if self.process is not None:
            self.process.kill()

    def wait_off(self) -> None:
        """Return when QEMU has ended."""
        if self.process is not None:
            self.process.wait(10)

    def is_ready(self) -> bool:
        """By the probe of the chart's pods. Raises LookupError with what the server says otherwise."""
        try:
            with urllib.request.urlopen(f"{self.monitor_url}{READY}", timeout=5):
                return True
        except HTTPError as error:
            raise LookupError(error.read().decode()) from error
        except (OSError, HTTPException) as error:
            raise LookupError(f"{error!r}; its console: {self.console[-1000:]}") from error

    @property
    def disk(self) -> Disk:
        return Disk(self.folder)

    def _command(self) -> list[str]:
        client, monitor = self.ports
        forwarded = f"hostfwd=tcp:127.0.0.1:{client}-:4222,hostfwd=tcp:127.0.0.1:{monitor}-:8222"
        named = f"name=nats-{self.number} address={address_of(self.number)}"
        return [
            PROGRAM, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-m", MEMORY,
            "-machine", f"q35,accel={'kvm' if has_kvm() else 'tcg'}", "-cpu", "max",
            "-kernel", str(self.kernel), "-initrd", str(self.archive),
            "-append", f"{_KERNEL_OPTIONS} {named}",
            "-netdev", f"user,id=host,restrict=on,{forwarded}",
            "-device", "virtio-net-pci,netdev=host,romfile=",
            "-netdev", f"socket,id=rack,mcast={_GROUP}:{self.rack},localaddr=127.0.0.1",
            "-device", f"virtio-net-pci,netdev=rack,romfile=,mac=52:54:00:00:01:0{self.number}",
        ]  # fmt: skip


def address_of(number: int) -> str:
    """In the network of the machines."""
    return f"10.1.0.{10 + number}"


def has_kvm() -> bool:
    """Whether the processor runs guests itself; a virtual machine may have the device without that."""
    return _KVM.exists() and bool(re.search(r"\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text()))
