"""An admission webhook of a user that answers 500, on a real API server."""

from __future__ import annotations

import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from aiohttp import web

from paddlewheel.contracts.keys import Key
from paddlewheel.devcluster.certs import Authority
from paddlewheel.devcluster.cluster import Cluster
from paddlewheel.kube.ports import Cluster as Api
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.testkit.wait import eventually

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
NAME = "policy.example.com"


class FailingWebhook:
    """A webhook that answers 500 to all requests until a test repairs it. It counts requests by object."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.is_broken = True

    async def review(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked[review["request"]["name"]] += 1
        if self.is_broken:
            return web.Response(status=500, text="the policy engine is out of memory")
        allowed = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({**review, "response": allowed})


@dataclass(frozen=True)
class Asked:
    """The objects for which a webhook is called, in one namespace."""

    namespace: str
    group: str
    version: str
    resource: str
    operation: str
    labels: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def failing_webhook(
    api: Api, control_plane: Cluster, asked: Asked, folder: Path, probe: Callable[[], Awaitable[bool]]
) -> AsyncIterator[FailingWebhook]:
    """Serve it where the API server reaches the host, while the block runs.

    Args:
        folder: for its certificates.
        probe: the API server calls it by now, which it takes a moment to learn.
    """
    authority, failing = Authority(folder, "webhook"), FailingWebhook()
    identity = authority.server("server", "webhook", ["localhost"], [IPv4Address(control_plane.gateway)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    app = web.Application()
    app.router.add_post("/", failing.review)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, control_plane.gateway, 0, ssl_context=context).start()
        url = f"https://{control_plane.gateway}:{runner.addresses[0][1]}/"
        bundle = base64.b64encode(authority.identity.certificate.read_bytes()).decode()
        await api.create(WEBHOOKS, _configuration(asked, url, bundle))
        await eventually(probe, what="the webhook is called")
        failing.asked.clear()
        yield failing
        await api.delete(WEBHOOKS, Key("", asked.namespace))
    finally:
        await runner.cleanup()


def _configuration(asked: Asked, url: str, bundle: str) -> Object:
    rule: dict[str, Any] = {
        "apiGroups": [asked.group],
        "apiVersions": [asked.version],
        "operations": [asked.operation],
        "resources": [asked.resource],
    }
    hook = {
        "name": NAME,
        "clientConfig": {"url": url, "caBundle": bundle},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": asked.namespace}},
        "objectSelector": {"matchLabels": asked.labels},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
    }
    return {"metadata": {"name": asked.namespace}, "webhooks": [hook]}
