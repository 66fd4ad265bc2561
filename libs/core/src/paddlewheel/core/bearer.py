"""Bearer tokens of requests."""

from __future__ import annotations

import hmac


def is_bearer(authorization: str, token: str) -> bool:
    """Whether the header Authorization holds the token, compared in constant time."""
    # A header may hold any bytes.
    given = authorization.encode(errors="surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())
