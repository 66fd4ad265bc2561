"""Names that commands generate, as Kubernetes does."""

from __future__ import annotations

import secrets

RANDOM = 5
"""Characters of the random end."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""As Kubernetes has them: no words come of them."""


def random_end() -> str:
    """What makes a generated name another one each time."""
    return "".join(secrets.choice(_LETTERS) for _ in range(RANDOM))
