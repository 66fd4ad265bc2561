"""Access to the bus, from arguments or from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from paddlewheel.bus import Access, tls_problem
from paddlewheel.bus.admin.permissions import SUBSCRIBER, inbox_prefix
from paddlewheel.contracts.bus_tokens import MAX_NAMESPACES
from paddlewheel.sdk.errors import InvalidArgument

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def resolve_access(
    url: str | None = None,
    tls_dir: str | Path | None = None,
    creds_file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    role: str = SUBSCRIBER,
) -> Access:
    """The access to the bus. An argument precedes its environment variable.

    | variable | argument | value |
    |---|---|---|
    | NATS_URL | url | address of the bus |
    | NATS_TLS_DIR | tls_dir | folder with ca.crt |
    | NATS_TOKEN_FILE | | projected service-account token |
    | NATS_TEAM | | team of subscribers to join with the token |
    | NATS_NAMESPACES | | without a team: namespaces, joined by commas, whose live facts are received |
    | NATS_CREDS | creds_file | credentials file, or seed of an nkey, for a server of your own |
    | NATS_TLS_HOSTNAME | | name in the server's certificate, if it differs from the address |

    Raises:
        InvalidArgument: there is no address, or a file cannot be used; the message names the argument or
            variable.
    """
    env = os.environ if environment is None else environment
    address = url or env.get("NATS_URL", "")
    folder = str(tls_dir or env.get("NATS_TLS_DIR", ""))
    token = env.get("NATS_TOKEN_FILE", "")
    credentials = str(creds_file or env.get("NATS_CREDS", ""))
    if not address:
        remedy = 'pass url="nats://nats.paddle-system.svc:4222" or set NATS_URL'
        raise InvalidArgument("url", "the address of the bus is unknown", remedy)
    _check_tls("tls_dir" if tls_dir else "NATS_TLS_DIR", folder)
    _check_credentials("creds_file" if creds_file else "NATS_CREDS", credentials)
    _check_token(token, folder)
    namespaces = _namespaces(env) if role == SUBSCRIBER else ()
    return Access(
        url=address,
        creds_file=credentials,
        tls_dir=folder,
        token_file=token,
        tls_hostname=env.get("NATS_TLS_HOSTNAME", ""),
        streams="assume",
        inbox_prefix=inbox_prefix(role),
        namespaces=namespaces,
        ends_with_wrong_certificate=True,
        role=".".join((role, *namespaces)) if namespaces else _role(env, token, role),
    )


def _role(env: Mapping[str, str], token: str, role: str) -> str:
    """A member of a team connects by its name."""
    return (token and role == SUBSCRIBER and env.get("NATS_TEAM")) or role


def _namespaces(env: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in env.get("NATS_NAMESPACES", "").split(",") if name.strip())
    if names and env.get("NATS_TEAM"):
        raise InvalidArgument("NATS_NAMESPACES", "NATS_TEAM is set, too", "set one of them")
    if len(names) > MAX_NAMESPACES:
        remedy = f"name {MAX_NAMESPACES} at most, and read the others in another program"
        raise InvalidArgument("NATS_NAMESPACES", f"{len(names)} namespaces are named", remedy)
    if wrong := [name for name in names if not _NAMESPACE.fullmatch(name)]:
        remedy = "join names of namespaces by commas, for example team-a,team-b"
        raise InvalidArgument("NATS_NAMESPACES", f"{wrong[0]!r} is not the name of a namespace", remedy)
    return names


def _check_tls(source: str, folder: str) -> None:
    """Check the folder with ca.crt at once, because waiting does not create a missing file."""
    if folder and (problem := tls_problem(folder)):
        remedy = "a folder with ca.crt is needed (ConfigMap bus-ca)"
        raise InvalidArgument(source, problem, f"{remedy}, or none for a bus without TLS")


def _check_credentials(source: str, file: str) -> None:
    if file and not Path(file).is_file():
        raise InvalidArgument(
            source,
            f"there is no file {file}",
            "a NATS credentials file or the seed of an nkey is needed, or none",
        )


def _check_token(file: str, folder: str) -> None:
    if not file:
        return
    remedy = "mount a service-account token with the audience paddlewheel-bus (docs/tasks/access.md)"
    if not Path(file).is_file():
        raise InvalidArgument("NATS_TOKEN_FILE", f"there is no file {file}", remedy)
    if not folder:
        raise InvalidArgument("NATS_TLS_DIR", "a token is sent over TLS only", "name the folder of ca.crt")
