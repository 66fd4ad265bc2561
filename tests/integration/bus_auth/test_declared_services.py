"""A service of others with a token: what bus-auth grants is enough for its work, and no more."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import nats.errors
import pytest

from paddlewheel.bus import Access, connect
from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.bus.admin.rights import Identity, Watch, rights
from paddlewheel.bus.admin.services import declared_with
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.kube.api import ApiCluster
from paddlewheel.testkit.bus_auth import letting_in, standing
from paddlewheel.testkit.chart_bus import (
    BUS_ANSWER_TIMEOUT_SECONDS,
    BUS_CA,
    ChartBus,
    Guest,
    entering,
    install,
    running,
)
from paddlewheel.testkit.facts import make_gated

SERVICES = (
    "nats.services[0].name=notebooks",
    "nats.services[0].publishes[0].context=notebooks",
    "nats.services[0].follows={jobs}",
)
FACT = "pw.evt.notebooks.notebook.started.v1.team-a.uid-1"
API = "$JS.API"


def entered(bus: ChartBus, user: str, prefix: str = "_INBOX") -> AbstractAsyncContextManager[Guest]:
    return entering(bus, bus.folder / BUS_CA, prefix=prefix, user=user, password="any")


REFUSED = (
    "pw.evt.jobs.job.succeeded.v1.team-a.uid",
    f"{API}.CONSUMER.MSG.NEXT.PW_JOBS.trigger-controller-jobs",
    f"{API}.CONSUMER.CREATE.PW_JOBS.notebooks-jobs",
    f"{API}.STREAM.DELETE.PW_NOTEBOOKS",
)


async def works(service: Guest) -> None:
    """It does what it may, with one fact that waits for it."""
    js = service.client.jetstream(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    assert (await js.publish(FACT, b"{}")).stream == "PW_NOTEBOOKS"
    jobs = await js.pull_subscribe_bind("notebooks-jobs", "PW_JOBS")
    [fact] = await jobs.fetch(1, timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    await fact.ack_sync(timeout=BUS_ANSWER_TIMEOUT_SECONDS)
    assert (await js.consumer_info("PW_JOBS", "notebooks-jobs")).num_ack_pending == 0


async def is_kept_within(service: Guest) -> None:
    """What is not its own is refused."""
    for subject in REFUSED:
        assert await service.refused_to_publish(subject), subject
    assert await service.refused_to_subscribe("pw.evt.>")


async def publish_one(access: Access) -> None:
    """A fact of a job, as job-controller."""
    publisher = await connect(access, name="job-controller")
    try:
        await publisher.publish(make_gated(1))
    finally:
        await publisher.close()


async def test_bus_auth_lets_in_who_is_bound_to_its_role_in_kubernetes(
    cluster: ApiCluster, api_server: str, namespace: str, tmp_path: Path
) -> None:
    async with standing(cluster, api_server, namespace, tmp_path, *SERVICES) as stand:
        team = await stand.namespace()
        for account in ("notebooks", "other"):
            await stand.account(account, team)
        await stand.allow_service("notebooks", "notebooks", of=team)
        async with stand.installed():
            await publish_one(stand.access("job-controller", await stand.allow_role("job-controller")))
            token, other = [await stand.token(account, team) for account in ("notebooks", "other")]
            async with stand.enter("notebooks", token, prefix="_INBOX") as service:
                await works(service)
                await is_kept_within(service)

            for user, shown in (("notebooks", other), ("job-controller", token), ("reports", token)):
                with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
                    async with stand.enter(user, shown, prefix="_INBOX"):
                        pass


async def test_it_publishes_pulls_and_acknowledges_and_watchers_hear_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("any")
    with running(tmp_path / "bus", *SERVICES, passwords=False) as bus:

        async def agree(login: Login) -> Grant:
            watch = Watch(frozenset({"team-a"}), ("team-a", "watcher")) if login.role == SUBSCRIBER else None
            granted = rights(Identity(login.role, watch=watch), declared_with(bus.services))
            return Grant(login.role, *granted, int(time.time()) + 600)

        async with letting_in(bus, agree):
            shown = {"tls_dir": str(bus.folder / BUS_CA), "token_file": str(token)}
            await install(bus, **shown)
            await publish_one(bus.access("job-controller", **shown))
            async with entered(bus, "notebooks") as service, entered(bus, SUBSCRIBER) as watcher:
                heard = await watcher.client.subscribe("pw.evt.*.*.*.*.team-a.*")
                await watcher.client.flush()
                await works(service)
                assert (await heard.next_msg(BUS_ANSWER_TIMEOUT_SECONDS)).subject == FACT
                await is_kept_within(service)
