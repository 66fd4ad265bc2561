"""Where the bus is, how to connect to it, and what a service requires of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paddlewheel.bus.admin.permissions import ROLES, inbox_prefix
from paddlewheel.bus.admin.services import DeclaredService
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.streams import Limits

if TYPE_CHECKING:
    # A subscriber is no service and does without pydantic-settings.
    from paddlewheel.core.settings import Profile, ServiceSettings

StreamDuty = Literal["make", "check", "assume"]


@dataclass(frozen=True)
class Access:
    """How to connect to the bus.

    Args:
        url: `nats://host:port` or `tls://...`; several joined by commas.
        creds_file: path of a NATS credentials file, or of a file with the seed of an nkey, "" = none.
        tls_dir: folder with `ca.crt`, which is read for each connection; "" = no TLS.
        token_file: path of a projected service-account token, by which the server accepts the client as
            `role`; "" = none. It is read again at every connection, because the kubelet renews it.
        nkey_seed: seed of the nkey of a user in the server's configuration, "" = none.
        tls_hostname: name the server's certificate must carry, "" = the host of `url`.
        replicas: number of replicas of every stream, 1, 3 or 5.
        profile: `production` refuses a server that may lose acknowledged messages, `development` logs it.
        monitor_url: the server's HTTP monitor (`http://host:8222`), several joined by commas; "" = the
            server's durability is not known.
        streams: `make` creates and corrects streams and services' durables; on a server with permissions only
            the installer may. `check` waits until they exist and reports how they differ; `assume` does
            neither.
        reads: how messages without a durable are read: through ephemeral `consumers`, or `directly` with
            direct gets, which need no right to create a consumer.
        teams: teams of subscribers; with `make`, each gets copies of the streams of facts.
        services: services of other projects, with their own streams and durables.
        limits: stream name to the limits that `make` gives it beyond its declaration.
        inbox_prefix: prefix of the subjects of replies, "" = `_INBOX`.
        namespaces: the client only subscribes to live facts of these namespaces and makes no requests; () = a
            client that may do more.
        ends_with_wrong_certificate: calls raise Permanent when the server has a wrong certificate.
            Services wait, because their files may be replaced.
        role: the role whose permissions the connection has, for log and error messages.
    """

    url: str
    creds_file: str = ""
    tls_dir: str = ""
    token_file: str = ""
    nkey_seed: str = field(default="", repr=False)
    tls_hostname: str = ""
    replicas: int = 1
    profile: Profile = "development"
    monitor_url: str = ""
    streams: StreamDuty = "make"
    reads: Literal["consumers", "directly"] = "consumers"
    teams: tuple[Team, ...] = ()
    services: tuple[DeclaredService, ...] = ()
    limits: Mapping[str, Limits] = field(default_factory=dict)
    inbox_prefix: str = ""
    namespaces: tuple[str, ...] = ()
    ends_with_wrong_certificate: bool = False
    role: str = ""

    @classmethod
    def of(cls, settings: ServiceSettings, role: str) -> Access:
        """A service's access by its settings; `role` names its rights (`job-controller`, ...)."""
        return cls(
            url=settings.nats_url,
            creds_file=str(settings.nats_creds_file or ""),
            tls_dir=str(settings.nats_tls_dir or ""),
            token_file=str(settings.nats_token_file or ""),
            replicas=settings.nats_replicas,
            profile=settings.nats_profile,
            monitor_url=settings.nats_monitor_url,
            streams="check" if all(r.waits_for_streams for r in ROLES if r.name == role) else "assume",
            reads="directly",
            inbox_prefix=inbox_prefix(role),
            role=role,
        )
