"""Where the bus is, how one gets in, and what a service asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paddlewheel.core.settings import Profile, ServiceSettings

_EXPECTING: Final = frozenset({"cache-runtime", "subscriber"})
"""Roles that never make or change streams: those who own them do, and these have no right to."""


@dataclass(frozen=True)
class Access:
    """One way into the bus.

    Args:
        url: `nats://host:port` or `tls://...`; several joined by commas.
        creds_file: path of a NATS credentials file, "" = none.
        tls_dir: folder with `ca.crt`, and `tls.crt` with `tls.key` for mutual TLS; "" = no TLS is demanded.
            The files are read again at every connection, so that they may be replaced at any time.
        tls_hostname: name the server's certificate must carry, "" = the host of `url`.
        replicas: of every stream, 1, 3 or 5.
        profile: `production` refuses a server that may lose acknowledged messages, `development` says so.
        monitor_url: the server's HTTP monitor (`http://host:8222`), several joined by commas; "" = the
            server's durability cannot be seen.
        makes_streams: False expects streams and never makes or mends any.
        inbox_prefix: of the subjects answers come on, "" = `_INBOX`.
        role: whose rights the connection has, for messages to people.
    """

    url: str
    creds_file: str = ""
    tls_dir: str = ""
    tls_hostname: str = ""
    replicas: int = 1
    profile: Profile = "development"
    monitor_url: str = ""
    makes_streams: bool = True
    inbox_prefix: str = ""
    role: str = ""

    @classmethod
    def of(cls, settings: ServiceSettings, role: str) -> Access:
        """A service's access by its settings; `role` names its rights (`job-controller`, ...)."""
        return cls(
            url=settings.nats_url,
            creds_file=str(settings.nats_creds_file or ""),
            tls_dir=str(settings.nats_tls_dir or ""),
            replicas=settings.nats_replicas,
            profile=settings.nats_profile,
            monitor_url=settings.nats_monitor_url,
            makes_streams=role not in _EXPECTING,
            inbox_prefix=f"_INBOX_{role}",
            role=role,
        )
