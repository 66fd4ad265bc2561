"""Names that commands generate, in the way Kubernetes does."""

from __future__ import annotations

import secrets

RANDOM = 5
"""Number of random characters."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of Kubernetes, which do not form words."""


def random_end() -> str:
    """The random end of a generated name."""
    return "".join(secrets.choice(_LETTERS) for _ in range(RANDOM))
