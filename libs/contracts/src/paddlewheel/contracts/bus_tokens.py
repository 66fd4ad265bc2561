"""The service-account tokens with which clients log in to the bus."""

from __future__ import annotations

AUDIENCE = "paddlewheel-bus"
"""The audience of the tokens. The API server itself does not accept tokens with it."""
TOKEN_TIMEOUT_SECONDS = 3600
"""Seconds for which a token is valid. The kubelet renews it after four fifths of that time."""
MAX_NAMESPACES = 16
"""Namespaces that one connection may watch. The API server is asked about each."""
TOKEN = "token"  # noqa: S105 - a name, not a secret
"""The name of the file that contains a pod's token."""
