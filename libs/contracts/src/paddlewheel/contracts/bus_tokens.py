"""The service-account tokens that clients of the bus show."""

from __future__ import annotations

AUDIENCE = "paddlewheel-bus"
"""For whom they are made: the API server itself does not accept them."""
TOKEN_SECONDS = 3600
"""How long one is valid; the kubelet renews it when four fifths have passed."""
TOKEN = "token"  # noqa: S105 - a name, not a secret
"""The file in which a pod finds its own."""
