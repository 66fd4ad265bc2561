"""The Authority port over the API server: reviews of tokens and of access."""

from __future__ import annotations

from bus_auth.domain.accounts import read_review
from bus_auth.domain.model import Account, ResourceAttributes, TokenClaims
from bus_auth.domain.names import GROUP
from paddlewheel.contracts.bus_tokens import AUDIENCE
from paddlewheel.kube.ports import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Cluster


class KubernetesAuthority:
    """Sends each review to the API server, so a revoked right is refused at the next connection.

    The API server caches the review of a token for 10 s.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def review(self, token: str, claims: TokenClaims) -> Account:
        spec = {"token": token, "audiences": [AUDIENCE]}
        answer = await self._cluster.create(TOKEN_REVIEWS, {"metadata": {}, "spec": spec})
        return read_review(answer.get("status") or {}, claims)

    async def allows(self, account: Account, attributes: ResourceAttributes) -> bool:
        spec = {
            "user": account.user,
            "uid": account.uid,
            "groups": list(account.groups),
            "extra": {name: list(values) for name, values in account.extra.items()},
            "resourceAttributes": {
                "group": GROUP,
                "resource": attributes.resource,
                "verb": attributes.verb,
                "namespace": attributes.namespace,
                "name": attributes.name,
            },
        }
        answer = await self._cluster.create(SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
        return (answer.get("status") or {}).get("allowed") is True
