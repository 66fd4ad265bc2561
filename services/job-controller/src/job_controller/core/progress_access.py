"""The address and the tokens with which programs report their progress."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from paddlewheel.core.bearer import is_bearer

PATH = "/v1/progress/"
"""Before a job's uid and the epoch of the pod."""


@dataclass(frozen=True)
class ProgressAccess:
    """Where programs report, and the key that their tokens are made with."""

    url: str
    key: bytes = field(repr=False)

    def url_of(self, uid: str, restart_epoch: int) -> str:
        """The address to which the pods of one epoch of a job report."""
        return f"{self.url.rstrip('/')}{PATH}{uid}/{restart_epoch}"

    def token_of(self, uid: str) -> str:
        """The token of the pods of one job: HMAC-SHA256 of the job's uid, in hex."""
        return hmac.new(self.key, uid.encode(), hashlib.sha256).hexdigest()

    def accepts(self, uid: str, authorization: str) -> bool:
        """Whether the header of a request holds the job's token."""
        return is_bearer(authorization, self.token_of(uid))
