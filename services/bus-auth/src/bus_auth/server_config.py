"""The configuration of the NATS server in its pod: written before it starts, and reloaded when it changes.

The server reads accounts, the size of its store and its certificate again without losing a connection. The
chart's configuration and certificates are mounted files, which the kubelet replaces.
"""

from __future__ import annotations

import hashlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.bus.callout.keys import PublicKeys
from paddlewheel.core.files import replace_file
from paddlewheel.core.library_logging import LibraryLogger

PROGRAM = "nats-server"
CONFIG, KEYS, PID = "nats.conf", "keys.conf", "nats.pid"
"""Files in the folder of the server: its configuration, what that includes, and what the server writes."""

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """The files that the chart mounts.

    Args:
        config: `nats.conf`.
        certificate: the certificate of the key of bus-auth.
        tls: the folder with the server's own certificate, which the server reads itself.
    """

    config: Path
    certificate: Path
    tls: Path

    def read(self) -> tuple[str, str, str]:
        """The configuration, the keys, and a digest of the certificate. Raises Permanent or OSError."""
        content = b"".join(file.read_bytes() for file in sorted(self.tls.iterdir()) if file.is_file())
        return self.config.read_text(), variables(self.certificate), hashlib.sha256(content).hexdigest()


class ServerConfig:
    """Keeps the files in the server's folder equal to their sources."""

    def __init__(self, sources: Sources, folder: Path) -> None:
        self._sources, self._folder = sources, folder
        self._known: tuple[str, str, str] | None = None

    def update(self) -> bool:
        """Write what has changed, and have a running server reload it. Returns whether anything has changed.

        Raises:
            Permanent, OSError: a source cannot be read.
        """
        found = self._sources.read()
        if found == self._known:
            return False
        config, keys, _ = found
        # The server reads the configuration first, and the keys by it.
        for name, text in ((KEYS, keys), (CONFIG, config)):
            replace_file(self._folder / name, text.encode())
        self._reload()
        self._known = found
        return True

    def _reload(self) -> None:
        """A server that cannot apply a change logs an error, and keeps the configuration before."""
        try:
            pid = int((self._folder / PID).read_text())
            if _name_of(pid) == PROGRAM:
                os.kill(pid, signal.SIGHUP)
                log.info("the server reloads its configuration")
        except (OSError, ValueError) as error:
            # It does not run yet, and reads the new files when it starts.
            log.info("no server runs", why=repr(error))


def _name_of(pid: int) -> str:
    """The program of a process; the file may be of a server that has ended. Raises OSError."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def variables(certificate: Path) -> str:
    """Variables that the chart's nats.conf includes. Raises Permanent."""
    keys = PublicKeys.of_certificate(certificate)
    values = {"BUS_AUTH_ISSUER": keys.issuer, "BUS_AUTH_USER": keys.user, "BUS_AUTH_XKEY": keys.xkey}
    return "".join(f'{name}: "{value}"\n' for name, value in values.items())
