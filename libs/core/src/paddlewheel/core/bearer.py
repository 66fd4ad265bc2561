"""Bearer tokens of HTTP requests."""

from __future__ import annotations

import hmac


def is_bearer(authorization: str, token: str) -> bool:
    """Whether the Authorization header holds the token. The comparison takes constant time."""
    # A header can hold any bytes.
    given = authorization.encode(errors="surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())
