"""The configuration of the NATS server in its pod: written before it starts, and reloaded when it changes.

A reload of accounts, a larger store or a certificate loses no connection. The chart's configuration and
certificates are mounted files, which the kubelet replaces.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus_auth.timing import SERVER_RELOAD_CHECK_INTERVAL_SECONDS, SERVER_RELOAD_TIMEOUT_SECONDS
from paddlewheel.bus.callout.keys import PublicKeys
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent
from paddlewheel.core.files import replace_file
from paddlewheel.core.library_logging import LibraryLogger

PROGRAM = "nats-server"
CONFIG, KEYS, PID = "nats.conf", "keys.conf", "nats.pid"
"""Files in the folder of the server: its configuration, the keys that this includes, and its process id."""

_STORE = re.compile(r'^(\s*max_(memory|file)_store: )"(\d+)([KMGT])"$', re.MULTILINE)
_RUNNING_STORE = {"memory": "max_memory", "file": "max_storage"}
"""The name of a store in the configuration, and in the server's report."""

log = LibraryLogger(__name__)

Monitor = Callable[[], Awaitable[Mapping[str, Any] | None]]
"""The state that the server reports (`/varz`). None when no server answers."""


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

    def read(self) -> Content:
        """Raises Permanent or OSError."""
        config, keys = self.config.read_text(), variables(self.certificate)
        certificates = (file.read_bytes() for file in sorted(self.tls.iterdir()) if file.is_file())
        digest = hashlib.sha256(b"\0".join([config.encode(), keys.encode(), *certificates]))
        return Content(config, keys, f"config:{digest.hexdigest()[:32]}")


@dataclass(frozen=True)
class Content:
    """The files that the server must load.

    Args:
        tag: identifies the content. The server reports the tags of the configuration that it has loaded.
    """

    config: str
    keys: str
    tag: str


class ServerConfig:
    """Keeps the files in the server's folder equal to their sources, and the server equal to its files."""

    def __init__(self, sources: Sources, folder: Path, monitor: Monitor, clock: Clock) -> None:
        self._sources, self._folder = sources, folder
        self._monitor, self._clock = monitor, clock
        self._loaded: Content | None = None
        self.is_loaded = False
        """Whether the server had loaded its files, or was not running, at the last update."""

    @property
    def has_files(self) -> bool:
        """Whether the server has a configuration, and may be running."""
        return (self._folder / CONFIG).exists()

    async def update(self) -> bool:
        """Write what has changed, and have a running server load it.

        Returns:
            False when the server has not loaded it, or does not report. True when no server runs: it reads
            the files when it starts.

        Raises:
            Permanent, OSError: a source cannot be read.
        """
        try:
            self.is_loaded = await self._update(self._sources.read())
        except (OSError, Permanent):
            self.is_loaded = False
            raise
        return self.is_loaded

    async def _update(self, wanted: Content) -> bool:
        if wanted == self._loaded:
            return True
        # The server may refuse the new files.
        self._loaded = None
        server = await self._monitor()
        self._write(wanted, server)
        if server is None:
            return not self._runs_without_report()
        if not await self._load(wanted, server):
            log.error(
                "the server did not load its new configuration, so removed teams, members and namespaces"
                " still have access; the log of container nats contains the reason",
                fix="correct the values, or: kubectl rollout restart statefulset/nats",
            )
            return False
        self._loaded = wanted
        return True

    def _write(self, wanted: Content, server: Mapping[str, Any] | None) -> None:
        text = keep_store(wanted.config, server) if server else wanted.config
        # The configuration is written last, because it contains the tag and includes the keys.
        for name, content in ((KEYS, wanted.keys), (CONFIG, f'{text}\nserver_tags: ["{wanted.tag}"]\n')):
            file = self._folder / name
            if not file.exists() or file.read_text() != content:
                replace_file(file, content.encode())

    async def _load(self, wanted: Content, server: Mapping[str, Any]) -> bool:
        """Have the server load the files; returns whether it has.

        A server that has loaded them is signalled again: an account that a reload adds receives no messages
        of other accounts until the next reload, and this process may have crashed before that.
        """
        if _has(server, wanted):
            self._signal()
            return True
        self._signal()
        for _ in range(int(SERVER_RELOAD_TIMEOUT_SECONDS / SERVER_RELOAD_CHECK_INTERVAL_SECONDS)):
            await self._clock.sleep(SERVER_RELOAD_CHECK_INTERVAL_SECONDS)
            if _has(await self._monitor(), wanted):
                self._signal()
                log.info("the server has loaded its new configuration")
                return True
        return False

    def _runs_without_report(self) -> bool:
        """Whether the server runs and its monitor does not answer. A signal could end it."""
        is_running = self._process() is not None
        if is_running:
            log.warning("the server runs, but does not report its configuration")
        return is_running

    def _signal(self) -> None:
        if (pid := self._process()) is not None:
            os.kill(pid, signal.SIGHUP)
        else:
            log.warning("the server's process is not found, so it gets no signal to reload")

    def _process(self) -> int | None:
        try:
            pid = int((self._folder / PID).read_text())
            return pid if _name_of(pid) == PROGRAM else None
        except (OSError, ValueError):
            return None


def _has(server: Mapping[str, Any] | None, wanted: Content) -> bool:
    return server is not None and wanted.tag in (server.get("tags") or ())


def _name_of(pid: int) -> str:
    """The program of a process: the server may have ended. Raises OSError."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def keep_store(config: str, server: Mapping[str, Any]) -> str:
    """The configuration, with stores at least as large as those of the running server. A server refuses a
    configuration with a smaller store as a whole. A new pod has the smaller store."""
    running = (server.get("jetstream") or {}).get("config") or {}

    def kept(match: re.Match[str]) -> str:
        wanted = int(match[3]) * 1024 ** ("KMGT".index(match[4]) + 1)
        return f"{match[1]}{max(wanted, int(running.get(_RUNNING_STORE[match[2]]) or 0))}"

    return _STORE.sub(kept, config)


def variables(certificate: Path) -> str:
    """Variables that the chart's nats.conf includes. Raises Permanent."""
    keys = PublicKeys.of_certificate(certificate)
    values = {"BUS_AUTH_ISSUER": keys.issuer, "BUS_AUTH_USER": keys.user, "BUS_AUTH_XKEY": keys.xkey}
    return "".join(f'{name}: "{value}"\n' for name, value in values.items())
