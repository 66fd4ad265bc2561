"""The composition root: connects the API server, the requests of the bus, and the health endpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from pathlib import Path

from bus_auth.authority import KubernetesAuthority
from bus_auth.authorize import Authorizer, Policy
from bus_auth.certificates import Certificates
from bus_auth.config import Settings
from bus_auth.domain.names import SERVICE
from bus_auth.key_watch import KeyWatch
from bus_auth.metrics import Metrics
from paddlewheel import kube
from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import inbox_prefix
from paddlewheel.bus.admin.services import declared_with
from paddlewheel.bus.callout.certificates import AUTHORITY
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.callout.serve import CalloutServer
from paddlewheel.bus.nats.callout import NatsCallout
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import Cluster


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Answer the bus's servers until `stop`."""
    clock = SystemClock()
    measures = telemetry.set_up(SERVICE)
    try:
        async with await kube.connect(settings.kubeconfig) as cluster:
            certificates = certificates_of(settings, cluster, clock)
            if certificates is not None:
                await certificates.begin()
            key = CalloutKey(settings.key_file)
            authority = KubernetesAuthority(cluster)
            authorizer = Authorizer(authority, policy_of(settings), clock)
            metrics = Metrics(measures.meter, (settings.nats_tls_dir or Path()) / AUTHORITY)
            server = CalloutServer(key, authorizer.authorize, clock, metrics.answered)
            callout = NatsCallout(access_of(settings, key), server, clock, name=settings.pod_name)
            watch = KeyWatch(settings.key_file, key, callout, clock)
            keeping = [certificates.run()] if certificates is not None else []
            await _serve(callout, watch, keeping, settings.http_port, stop)
    finally:
        measures.shutdown()


def certificates_of(settings: Settings, cluster: Cluster, clock: Clock) -> Certificates | None:
    """The certificates that this service makes; None when another program makes them."""
    if not settings.server_names:
        return None
    folder = settings.key_file.parent
    return Certificates(cluster, settings.pod_namespace, settings.server_names, folder, clock)


def policy_of(settings: Settings) -> Policy:
    """The policy, with the teams and services that the settings declare."""
    return Policy(
        home=settings.pod_namespace,
        lifetime=settings.lifetime,
        teams=tuple(each.team for each in settings.teams),
        # Spreads clients in time; nothing secret depends on it.
        spread=random.random,
        declared=declared_with(settings.services),
    )


def access_of(settings: Settings, key: CalloutKey) -> Access:
    """Access as the user whose public key is in the server's configuration."""
    return Access(
        url=settings.nats_url,
        tls_dir=str(settings.nats_tls_dir or ""),
        nkey_seed=key.seed,
        streams="assume",
        inbox_prefix=inbox_prefix(SERVICE),
        role=SERVICE,
    )


async def _serve(
    callout: NatsCallout,
    watch: KeyWatch,
    keeping: Sequence[Coroutine[None, None, None]],
    port: int,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop`. Raises the error of a task that ends."""
    working = [asyncio.create_task(each) for each in (callout.run(), watch.run(), *keeping)]
    stopping = asyncio.create_task(stop.wait())
    checks = {"bus": callout.is_ready, "key": watch.is_current}
    try:
        async with http.serve(port, checks):
            done, _ = await asyncio.wait({*working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*working, stopping)
    for task in done:
        task.result()
