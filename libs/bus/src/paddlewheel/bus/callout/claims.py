"""Requests and answers of the callout, as NATS writes them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paddlewheel.bus.admin.permissions import Permissions
from paddlewheel.core.errors import Permanent

_VERSION = 2
_NO_LIMIT = -1
_LONGEST_SHOWN = 130
"""Two names of Kubernetes objects and a dot."""


@dataclass(frozen=True)
class Login:
    """A client's attempt to connect.

    Args:
        role: the role that it asks for: the user name of the connection.
        token: its service-account token: the password of the connection. It is never logged.
        host: its address, for the log.
    """

    role: str
    token: str = field(repr=False)
    host: str = ""

    @property
    def shown(self) -> str:
        """Its role, shortened for the log: people put tokens into user names by mistake."""
        return self.role if len(self.role) <= _LONGEST_SHOWN else f"{self.role[:8]}..."


@dataclass(frozen=True)
class Request:
    """The server's question about one connection.

    Args:
        server: id of the server. The answer is valid for this server only.
        user: key that the server made for this connection; the answer must name it.
        login: the client's attempt to connect.
        expires: Unix time at which the server stops waiting.
    """

    server: str
    user: str
    login: Login
    expires: int


@dataclass(frozen=True)
class Grant:
    """The rights of a client.

    Args:
        name: name of the client in the server's log and monitor.
        account: account of the server to which the client belongs.
        permissions: its permissions in that account.
        expires: Unix time at which the server disconnects it.
    """

    name: str
    account: str
    permissions: Permissions
    expires: int


def read_request(token: bytes) -> Request:
    """Read a decrypted request. Raises Permanent."""
    try:
        claims = json.loads(_unpadded(token.split(b".")[1]))
        asked, options = claims["nats"], claims["nats"]["connect_opts"]
        return Request(
            server=asked["server_id"]["id"],
            user=asked["user_nkey"],
            login=Login(
                role=options.get("user", ""),
                token=options.get("pass", ""),
                host=asked["client_info"].get("host", ""),
            ),
            expires=int(claims["exp"]),
        )
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise Permanent("MalformedRequest", f"the request cannot be read: {type(error).__name__}") from error


def user_claims(request: Request, issuer: str, grant: Grant, now: int) -> dict[str, Any]:
    """The claims of a user JWT with the rights of `grant`, for this connection only."""
    permissions = grant.permissions.as_config()
    rights = {"pub": _closed(permissions["publish"]), "sub": _closed(permissions["subscribe"])}
    limits = {"subs": _NO_LIMIT, "data": _NO_LIMIT, "payload": _NO_LIMIT}
    return {
        **_claims(issuer, request.user, grant.account, now),
        "name": grant.name,
        "exp": grant.expires,
        "nats": {**rights, **limits, "type": "user", "version": _VERSION},
    }


def answer_claims(request: Request, issuer: str, answer: Mapping[str, str], now: int) -> dict[str, Any]:
    """The claims of the answer to a request: `answer` is `{"jwt": ...}`, or `{"error": ...}` to refuse."""
    return {
        **_claims(issuer, request.user, request.server, now),
        "nats": {**answer, "type": "authorization_response", "version": _VERSION},
    }


def _closed(allowed: dict[str, list[str]]) -> dict[str, list[str]]:
    """Deny all subjects when none is allowed: the server takes an empty list for no restriction."""
    return allowed if allowed["allow"] else {"deny": [">"]}


def _claims(issuer: str, subject: str, audience: str, now: int) -> dict[str, Any]:
    return {"iss": issuer, "sub": subject, "aud": audience, "iat": now}


def _unpadded(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
